/** How we stand to the server, honestly: live, catching up, or offline with what waits to be sent. */

import { chat, client, connection, failure, title } from "../state/session.ts";

const WORDS = { live: "live", catching_up: "catching up", offline: "offline" } as const;

export function ConnectionBar() {
  if (!chat.value) return <header class="bar" />;
  const { state, held, reason } = connection.value;
  const waiting = held && state !== "live" ? `, ${held} waiting to be sent` : "";
  return (
    <header class="bar">
      <h1>{title.value}</h1>
      <span class={`standing ${state}`} role="status" title={reason}>
        {failure.value ? failure.value.message : WORDS[state] + waiting}
      </span>
      {state === "offline" && !failure.value && <button onClick={() => client.faults.cut()}>Try now</button>}
    </header>
  );
}
