/** Whether a chat really goes. */

import { useState } from "preact/hooks";
import type { ChatSummary } from "threadcast-client";

import { ask } from "../state/actions.ts";
import { go, route } from "../state/route.ts";
import { Dialog } from "../ui/dialog.tsx";
import { forget } from "./list.ts";
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
      <p>“{chat.title || "New Chat"}” and all that was said in it will be gone, for everybody who has it open.</p>
      <div class={css.dialogActions}>
        <button onClick={onClose}>Keep it</button>
        <button class="dangerous" disabled={isBusy} autofocus onClick={() => void remove()}>
          Delete
        </button>
      </div>
    </Dialog>
  );
}
