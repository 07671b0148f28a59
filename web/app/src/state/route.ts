/** Where in the page we are, as the address says it: `/` is a chat that nobody has begun, `/c/<id>` is that chat, and the
 * server gives the page for `/c/` with anything behind it. */

import { signal } from "@preact/signals";

export interface Route {
  readonly chatId: string | null;
  /** No chat can have this address (PROTOCOL §1, "Ids"). */
  readonly isUnknown: boolean;
}

const RESERVED: ReadonlySet<string> = new Set(["subscribe", "feed", "import"]);

function read(): Route {
  const id = /^\/c\/([A-Za-z0-9_-]{1,128})$/.exec(location.pathname)?.[1] ?? null;
  const chatId = id !== null && RESERVED.has(id) ? null : id;
  return { chatId, isUnknown: chatId === null && location.pathname !== "/" };
}

export const route = signal<Route>(read());
addEventListener("popstate", () => {
  route.value = read();
});

/** Go to a chat, or with null to the beginning of a new one. `replace`: without a step back. */
export function go(chatId: string | null, { replace = false } = {}): void {
  const path = chatId === null ? "/" : `/c/${chatId}`;
  if (path === location.pathname) return;
  history[replace ? "replaceState" : "pushState"](null, "", path);
  route.value = read();
}
