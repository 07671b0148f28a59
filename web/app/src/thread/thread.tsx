/** The messages of the open chat, root first, the unfinished answer as it grows. */

import { activePath, textOf } from "threadcast-client";

import { state } from "../state/session.ts";

export function Thread() {
  return (
    <section class="thread" aria-label="Conversation">
      {activePath(state.value).map((message) => (
        <article key={message.message_id} class={`message ${message.role}`} aria-label={message.role}>
          {textOf(message)}
        </article>
      ))}
    </section>
  );
}
