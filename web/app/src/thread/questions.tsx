/** The dialogs of `acts.ts`: which model answers again, and whether to delete a message. */

import { caps, models } from "../state/caps.ts";
import { Dialog } from "../ui/dialog.tsx";
import { asked, regenerate, remove } from "./acts.ts";
import css from "./thread.module.css";

export function MessageQuestions() {
  const question = asked.value;
  if (!question) return null;
  const close = () => (asked.value = null);
  if (question.what === "model") return <WhichModel messageId={question.messageId} onClose={close} />;
  return (
    <Dialog title="Delete this message?" onClose={close}>
      <p>All later messages of this branch are deleted too. Other branches stay.</p>
      <div class={css.choices}>
        <button type="button" onClick={close}>
          Cancel
        </button>
        <button
          type="button"
          class="dangerous"
          onClick={() => {
            close();
            void remove(question.messageId);
          }}
        >
          Delete
        </button>
      </div>
    </Dialog>
  );
}

function WhichModel({ messageId, onClose }: { messageId: string; onClose: () => void }) {
  return (
    <Dialog title="Answer again with" onClose={onClose}>
      <div class={css.models}>
        {!caps.value && <p>Loading the list of models…</p>}
        {models.value.map(({ id: name }) => (
          <button
            key={name}
            type="button"
            onClick={() => {
              onClose();
              void regenerate(messageId, name);
            }}
          >
            {name}
          </button>
        ))}
      </div>
    </Dialog>
  );
}
