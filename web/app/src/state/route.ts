/**
 * Reads and changes the address of the page: `/` is a new chat, and `/c/<id>` is the chat with that id. The server
 * returns the page for every address that begins with `/c/`. `?scope=` names the scope of new messages, and stays in
 * the address from chat to chat.
 */

import { signal } from "@preact/signals";

import { scopeFrom } from "./contexts.ts";

export interface Route {
  readonly chatId: string | null;
  /** No chat can have this address (PROTOCOL §1, "Ids"). */
  readonly isUnknown: boolean;
  /** The scope, such as "reports/articles"; "" for none. */
  readonly scope: string;
  /** The scope in the address is malformed. */
  readonly isLost: boolean;
}

const RESERVED: ReadonlySet<string> = new Set(["subscribe", "feed", "import"]);

function read(): Route {
  const id = /^\/c\/([A-Za-z0-9_-]{1,128})$/.exec(location.pathname)?.[1] ?? null;
  const chatId = id !== null && RESERVED.has(id) ? null : id;
  const scope = scopeFrom(location.search);
  const isUnknown = chatId === null && location.pathname !== "/";
  return { chatId, isUnknown, scope: scope ?? "", isLost: scope === null };
}

export const route = signal<Route>(read());
addEventListener("popstate", () => {
  route.value = read();
});

/** Returns the address of a chat (null stands for a new chat), with the present scope. */
export function addressOf(chatId: string | null, scope = route.peek().scope): string {
  const query = scope ? `?scope=${scope.split("/").map(encodeURIComponent).join("/")}` : "";
  return (chatId === null ? "/" : `/c/${chatId}`) + query;
}

/** Opens a chat; null opens a new chat. With `replace` the browser's Back button skips the present address. */
export function go(chatId: string | null, { replace = false, scope = route.peek().scope } = {}): void {
  const address = addressOf(chatId, scope);
  if (address === location.pathname + location.search) return;
  history[replace ? "replaceState" : "pushState"](null, "", address);
  route.value = read();
}
