/** Shows the positions of this page and of the server and the counts of connections, with buttons that cause faults. */

import { useEffect, useState } from "preact/hooks";

import { ignoredCount } from "../state/page_context.ts";
import { chat, client, connection, isRunning, live } from "../state/session.ts";
import { copy } from "../ui/clipboard.ts";
import { size } from "../ui/figures.ts";
import { IconButton } from "../ui/icon.tsx";
import { bytesOf } from "./lines.ts";
import { counts, lastSnapshot, note } from "./record.ts";
import css from "./contents.module.css";

interface Stored {
  readonly position: number;
  readonly bytes: number;
}

export function Numbers() {
  const id = chat.value?.id ?? "";
  const [stored, setStored] = useState<Stored | null>(null);
  const isBegun = live.value.position > 0;
  const look = () => void (isBegun ? read(id) : Promise.resolve(null)).then(setStored);
  // The position is fetched again when it has probably changed: after a run, and after a reconnect.
  const isLive = connection.value.state === "live";
  useEffect(look, [id, isBegun, isRunning.value, isLive]);
  const { connections, resumes, losses, gaps, resyncs, events } = counts.value;
  const snapshot = lastSnapshot.value;
  return (
    <section class={css.numbers} aria-label="Numbers">
      <dl>
        <Pair name="Chat">
          <code>{id}</code>
          <IconButton name="copy" label="Copy the chat's id" onClick={() => void copy(id)} />
        </Pair>
        <Pair name="Position here">{live.value.position}</Pair>
        <Pair name="Position on the server">
          {stored ? `${stored.position} (${size(stored.bytes)})` : isBegun ? "…" : "no messages yet"}
          <IconButton name="retry" label="Ask the server again" onClick={look} />
        </Pair>
        <Pair name="Last snapshot">{snapshot ? `at ${snapshot.position}, ${size(bytesOf(snapshot.body))}` : "none yet"}</Pair>
        <Pair name="Events">{events}</Pair>
        <Pair name="Connections">
          {connections}, {losses} lost, {resumes} resumed
        </Pair>
        <Pair name="Gaps">
          {gaps} seen, {resyncs} resynced
        </Pair>
        {ignoredCount.value > 0 && <Pair name="Messages of other pages">{ignoredCount.value} ignored; the reasons are in the browser's console</Pair>}
      </dl>
      <div class={css.faults}>
        <button
          type="button"
          onClick={() => {
            note("cut by hand");
            client.faults.cut();
          }}
        >
          Cut the connection
        </button>
        <button
          type="button"
          onClick={() => {
            note("the next event will be dropped by hand");
            client.faults.drop();
          }}
        >
          Drop an event
        </button>
      </div>
    </section>
  );
}

function Pair({ name, children }: { name: string; children: preact.ComponentChildren }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  );
}

/** Fetches the chat's position on the server, and the size of its snapshot. */
async function read(id: string): Promise<Stored | null> {
  try {
    const text = await (await client.request("GET", `/v1/chats/${encodeURIComponent(id)}`)).text();
    return { position: (JSON.parse(text) as { position: number }).position, bytes: new TextEncoder().encode(text).length };
  } catch {
    return null; // the bar shows why there is no answer
  }
}
