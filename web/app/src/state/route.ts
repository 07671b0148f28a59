/** Where in the page we are, as the address says it: `/` is a chat that nobody has begun, `/c/<id>` is that chat. */

import { signal } from "@preact/signals";

export interface Route {
  readonly chatId: string | null;
}

function read(): Route {
  const match = /^\/c\/([A-Za-z0-9_-]{1,128})$/.exec(location.pathname);
  return { chatId: match?.[1] ?? null };
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
