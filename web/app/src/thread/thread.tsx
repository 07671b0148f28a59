/** The messages of the open chat, root first, the unfinished answer as it grows. */

import { activePath } from "threadcast-client";

import { state } from "../state/session.ts";
import { Message } from "./message.tsx";

export function Thread() {
  return (
    <section class="thread" aria-label="Conversation">
      {activePath(state.value)
        .filter((message) => message.role !== "tool")
        .map((message) => (
          <Message key={message.message_id} message={message} />
        ))}
    </section>
  );
}
