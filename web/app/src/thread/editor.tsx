/** The words of a message, to be said otherwise. Enter sends, Escape gives up; as high as its text. */

import { useLayoutEffect, useRef, useState } from "preact/hooks";
import css from "./thread.module.css";

export function Editor({ text, onSave, onCancel }: { text: string; onSave: (said: string) => unknown; onCancel: () => void }) {
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
  const save = () => said.trim() && onSave(said);
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
          if (event.key === "Escape") onCancel();
          else if (event.key === "Enter" && !event.shiftKey && !event.isComposing) save();
          else return;
          event.preventDefault();
          event.stopPropagation();
        }}
      />
      <div class={css.choices}>
        <button type="button" onClick={onCancel}>
          Cancel
        </button>
        <button type="submit" class="primary" disabled={!said.trim()}>
          Send
        </button>
      </div>
    </form>
  );
}
