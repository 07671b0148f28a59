/** Asks whether to delete a chat. */

import { useState } from "preact/hooks";
import type { ChatSummary } from "threadcast-client";

import { ask } from "../state/actions.ts";
import { go, route } from "../state/route.ts";
import { Dialog } from "../ui/dialog.tsx";
import { forget } from "./list.ts";
import { titleOf } from "../ui/title.ts";
import css from "./sidebar.module.css";

export function ConfirmDelete({ chat, onClose }: { chat: ChatSummary; onClose: () => void }) {
  const [isBusy, setBusy] = useState(false);
  const remove = async () => {
    setBusy(true);
    if (await ask("DELETE", `/v1/chats/${chat.id}`)) {
      forget(chat.id);
      if (route.value.chatId === chat.id) go(null, { replace: true });
    }
    onClose();
  };
  return (
    <Dialog title="Delete this chat?" onClose={onClose}>
      <p>“{titleOf(chat.title)}” and all its messages will be deleted, also for other people who have it open.</p>
      <div class={css.dialogActions}>
        <button onClick={onClose}>Keep it</button>
        <button class="dangerous" disabled={isBusy} autofocus onClick={() => void remove()}>
          Delete
        </button>
      </div>
    </Dialog>
  );
}
