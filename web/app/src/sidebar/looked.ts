/**
 * Remembers when each chat was last viewed in this browser. A chat that was never viewed counts as viewed when this
 * browser first saw the list, so that a first visit does not mark every chat as new.
 */

import { effect, signal } from "@preact/signals";

import { chats, chat } from "../state/session.ts";
import { person } from "../state/storage.ts";

const KEY = "threadcast.looked";
/** The number of remembered chats, more than the list shows at first; for other chats `since` is used. */
const LOOKED_MAX_COUNT = 500;

interface Looked {
  since: number;
  at: Record<string, number>;
}

function read(): Looked {
  try {
    const kept = JSON.parse(person.getItem(KEY) ?? "") as Looked;
    if (typeof kept.since === "number" && typeof kept.at === "object") return kept;
  } catch {
    // nothing stored, or not stored by this page
  }
  return { since: 0, at: {} };
}

export const looked = signal<Looked>(read());

// A chat that is viewed in another tab counts as viewed here too.
addEventListener("storage", (event) => {
  if (person.isNameOf(KEY, event.key)) looked.value = read();
});

const isVisible = signal(document.visibilityState === "visible");
document.addEventListener("visibilitychange", () => {
  isVisible.value = document.visibilityState === "visible";
});

export function lookedAt(chatId: string): number {
  return looked.value.at[chatId] ?? looked.value.since;
}

effect(() => {
  const list = chats.value;
  if (!list.isLive) return;
  const kept = looked.peek();
  const open = isVisible.value ? list.chats.find(({ id }) => id === chat.value?.id) : undefined;
  const since = kept.since || Math.max(1, ...list.chats.map(({ last_active }) => last_active));
  if (since === kept.since && (!open || (kept.at[open.id] ?? 0) >= open.last_active)) return;
  const entries = Object.entries({ ...kept.at, ...(open && { [open.id]: open.last_active }) });
  entries.sort((a, b) => b[1] - a[1]);
  looked.value = { since, at: Object.fromEntries(entries.slice(0, LOOKED_MAX_COUNT)) };
  person.setItem(KEY, JSON.stringify(looked.value));
});
