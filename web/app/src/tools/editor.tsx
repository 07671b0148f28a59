/** Edits arguments as JSON before they are used. One button restores the original. */

import type { JsonObject } from "threadcast-client";
import { useId, useState } from "preact/hooks";

import { readEdited } from "./editing.ts";
import { useFocused } from "./focus.ts";
import asksCss from "./questions.module.css";

/** The most lines that are visible on a phone with its keyboard open. */
const ROWS_MAX = 12;

export function Editor({ value, submitLabel, isBusy, onSubmit, onLeave }: {
  value: JsonObject;
  submitLabel: string;
  isBusy: boolean;
  /** `edited` is null if the person changed nothing. */
  onSubmit: (edited: JsonObject | null) => void;
  onLeave: () => void;
}) {
  const original = JSON.stringify(value, null, 2);
  const [text, setText] = useState(original);
  const wrongId = useId();
  const field = useFocused<HTMLTextAreaElement>();
  const read = readEdited(text, value);
  const error = "error" in read ? read.error : null;
  const submit = () => {
    if (!("error" in read) && !isBusy) onSubmit(read.isChanged ? read.value : null);
  };
  return (
    <form
      class={asksCss.editor}
      onSubmit={(event) => {
        event.preventDefault();
        submit();
      }}
    >
      <textarea
        ref={field}
        aria-label="Arguments, as JSON"
        aria-invalid={error !== null}
        aria-describedby={wrongId}
        spellcheck={false}
        rows={Math.min(ROWS_MAX, text.split("\n").length + 1)}
        value={text}
        onInput={(event) => setText(event.currentTarget.value)}
        onKeyDown={(event) => {
          if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
          event.preventDefault();
          submit();
        }}
      />
      <p id={wrongId} class={asksCss.editorWrong} role="status">{error ?? ""}</p>
      <div class={asksCss.choices}>
        <button type="submit" class="primary" disabled={isBusy || error !== null}>{submitLabel}</button>
        <button type="button" disabled={text === original} onClick={() => setText(original)}>Original</button>
        <button type="button" onClick={onLeave}>Back</button>
      </div>
    </form>
  );
}
