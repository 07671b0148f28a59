/** Edits an earlier message, with the keys of the message box. Escape gives up. Makes the box as high as its text. */

import { useLayoutEffect, useRef, useState } from "preact/hooks";

import { isTyped } from "../composer/typed.ts";
import type { When } from "../state/actions.ts";
import { isRunning } from "../state/session.ts";
import css from "./thread.module.css";

export function Editor({ text, onSave, onCancel }: { text: string; onSave: (said: string, when: When) => unknown; onCancel: () => void }) {
  const [said, setSaid] = useState(text);
  const box = useRef<HTMLTextAreaElement>(null);
  useLayoutEffect(() => {
    box.current?.focus();
    box.current?.setSelectionRange(text.length, text.length);
  }, []);
  useLayoutEffect(() => {
    if (!box.current) return;
    box.current.style.height = "auto";
    box.current.style.height = `${box.current.scrollHeight + 2}px`;
  }, [said]);
  const isBusy = isRunning.value;
  const save = (when: When = "queue") => said.trim() && onSave(said, isBusy ? when : "queue");
  return (
    <form
      class={css.editor}
      onSubmit={(event) => {
        event.preventDefault();
        save();
      }}
    >
      <textarea
        ref={box}
        dir="auto"
        aria-label="Edit message"
        value={said}
        onInput={(event) => setSaid(event.currentTarget.value)}
        onKeyDown={(event) => {
          if (!isTyped(event)) return;
          if (event.key === "Escape") onCancel();
          else if (event.key === "Enter" && !event.shiftKey) save(event.ctrlKey || event.metaKey ? "stop" : event.altKey ? "next" : "queue");
          else return;
          event.preventDefault();
          event.stopPropagation();
        }}
      />
      <div class={css.choices}>
        <button type="button" onClick={onCancel}>
          Cancel
        </button>
        {isBusy && (
          <button type="button" title="Stop the answer and send now (Ctrl+Enter)" disabled={!said.trim()} onClick={() => save("stop")}>
            Stop and send
          </button>
        )}
        <button type="submit" class="primary" title={isBusy ? "Send after the answer (Enter)" : "Send (Enter)"} disabled={!said.trim()}>
          {isBusy ? "Queue" : "Send"}
        </button>
      </div>
    </form>
  );
}
