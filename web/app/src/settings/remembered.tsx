/** Lists the tools that this chat no longer asks about because of an earlier decision, with buttons that ask again. */

import { signal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import type { Approvals } from "threadcast-client";

import { ask } from "../state/actions.ts";
import { chat, client, onEvent, state } from "../state/session.ts";
import { Icon } from "../ui/icon.tsx";
import css from "./settings.module.css";

const tools = signal<readonly string[]>([]);

async function refresh(): Promise<void> {
  const id = chat.peek()?.id;
  const found = id && state.peek().position ? await client.get<Approvals>(`/v1/chats/${id}/approvals`).catch(() => null) : null;
  if (id === chat.peek()?.id) tools.value = found?.tools ?? [];
}

async function forget(name: string): Promise<void> {
  const id = chat.peek()?.id;
  if (id) await ask("DELETE", `/v1/chats/${id}/approvals/${encodeURIComponent(name)}`);
  await refresh();
}

/** The name `mcp__SERVER__*` stands for all tools of a server (PROTOCOL §11). */
function wordsOf(name: string): string {
  const server = /^mcp__(.+)__\*$/.exec(name)?.[1];
  return server ? `all tools of ${server}` : name;
}

export function Remembered() {
  useEffect(() => {
    void refresh();
    // A decision can only be remembered in a pause, so the list is loaded again after each pause.
    return onEvent((event) => {
      if (event.type === "pause_cleared") void refresh();
    });
  }, [chat.value]);
  return (
    <section class={css.remembered} aria-label="Remembered approvals">
      <h3>Always allowed in this chat</h3>
      {!tools.value.length && <p class={css.hint}>There are no tools here yet. If you choose “Always” for a tool, it is listed here.</p>}
      <ul>
        {tools.value.map((name) => (
          <li key={name}>
            <Icon name="tool" /> <span class={css.name}>{wordsOf(name)}</span>
            <button type="button" aria-label={`Ask again about ${wordsOf(name)}`} onClick={() => void forget(name)}>
              Ask again
            </button>
          </li>
        ))}
      </ul>
    </section>
  );
}
