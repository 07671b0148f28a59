/** Groups the list of chats by day, searches it, and marks chats with news. Pure. */

import type { ChatSummary } from "threadcast-client";

export interface Group {
  readonly name: string;
  readonly chats: readonly ChatSummary[];
}

const NAMES = ["Today", "Yesterday", "Last 7 days", "Older"] as const;

/**
 * Groups chats by calendar day in the local time zone, keeping their order, the newest first. Empty groups are left
 * out.
 */
export function byDay(chats: readonly ChatSummary[], now: Date): Group[] {
  const days = [0, 1, 7].map((back) => new Date(now.getFullYear(), now.getMonth(), now.getDate() - back).getTime());
  const groups: ChatSummary[][] = NAMES.map(() => []);
  for (const chat of chats) {
    const at = days.findIndex((start) => chat.last_active >= start);
    groups[at < 0 ? NAMES.length - 1 : at]?.push(chat);
  }
  return NAMES.flatMap((name, at) => (groups[at]?.length ? [{ name, chats: groups[at] }] : []));
}

/** Returns the chats whose titles contain the words, ignoring case, like the server's search. */
export function matching(chats: readonly ChatSummary[], words: string): readonly ChatSummary[] {
  const wanted = words.trim().toLowerCase();
  return wanted ? chats.filter((chat) => chat.title.toLowerCase().includes(wanted)) : chats;
}

/** Merges two lists, the newest chat first. If a chat is in both lists, the entry of the first list is used. */
export function merged(live: readonly ChatSummary[], older: readonly ChatSummary[]): ChatSummary[] {
  const known = new Set(live.map((chat) => chat.id));
  return [...live, ...older.filter((chat) => !known.has(chat.id))].sort(
    (a, b) => b.last_active - a.last_active || (a.id < b.id ? -1 : 1),
  );
}

/** Returns the most urgent state of a chat, which its row shows beside the title. */
export type Mark = "working" | "asks" | "failed" | "unread" | "quiet";

export const MARK_WORDS: Record<Mark, string> = {
  working: "is answering",
  asks: "needs you",
  failed: "has failed",
  unread: "has something new",
  quiet: "",
};

/** `lookedAt` is when the chat was last viewed here, in milliseconds of the server's clock. */
export function markOf(chat: ChatSummary, lookedAt: number): Mark {
  if (chat.state === "paused" || chat.state === "waiting_ide") return "asks";
  if (chat.state === "generating" || chat.state === "executing_tools") return "working";
  const isNew = chat.last_active > lookedAt;
  if (chat.state === "error" && isNew) return "failed";
  return isNew ? "unread" : "quiet";
}
