/** One message, and what may be done with it. */

import { textOf, type Message as ChatMessage } from "threadcast-client";

import { PayloadsOf, ToolCalls } from "../tools/index.tsx";

export function Message({ message }: { message: ChatMessage }) {
  return (
    <article class={`message ${message.role}`} aria-label={message.role}>
      {textOf(message)}
      <ToolCalls message={message} />
      <PayloadsOf message={message} />
    </article>
  );
}
