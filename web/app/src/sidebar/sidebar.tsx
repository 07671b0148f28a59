/** The caller's chats with their live states, newest first. */

import { chats } from "../state/session.ts";
import { go, route } from "../state/route.ts";

export function Sidebar() {
  const { chats: items, hasMore } = chats.value;
  return (
    <nav class="sidebar" aria-label="Chats">
      <button class="new" onClick={() => go(null)}>New chat</button>
      <ul>
        {items.map(({ id, title, state }) => (
          <li key={id}>
            <a
              href={`/c/${id}`}
              aria-current={route.value.chatId === id ? "page" : undefined}
              onClick={(event) => {
                if (event.metaKey || event.ctrlKey) return;
                event.preventDefault();
                go(id);
              }}
            >
              <span class={`dot ${state}`} title={state} />
              {title || "New Chat"}
            </a>
          </li>
        ))}
      </ul>
      {hasMore && <p class="hint">Older chats are found by searching.</p>}
    </nav>
  );
}
