/** How a list of chats is read: by the days of the person who reads it, by words, by what is new in it. Pure. */

import type { ChatSummary } from "threadcast-client";

export interface Group {
  readonly name: string;
  readonly chats: readonly ChatSummary[];
}

const NAMES = ["Today", "Yesterday", "Last 7 days", "Older"] as const;

/** Newest first, as they come; empty groups are left out. Days are calendar days at `now`'s own place. */
export function byDay(chats: readonly ChatSummary[], now: Date): Group[] {
  const days = [0, 1, 7].map((back) => new Date(now.getFullYear(), now.getMonth(), now.getDate() - back).getTime());
  const groups: ChatSummary[][] = NAMES.map(() => []);
  for (const chat of chats) {
    const at = days.findIndex((start) => chat.last_active >= start);
    groups[at < 0 ? NAMES.length - 1 : at]?.push(chat);
  }
  return NAMES.flatMap((name, at) => (groups[at]?.length ? [{ name, chats: groups[at] }] : []));
}

/** As the server searches: titles that hold the words, whatever their case. */
export function matching(chats: readonly ChatSummary[], words: string): readonly ChatSummary[] {
  const wanted = words.trim().toLowerCase();
  return wanted ? chats.filter((chat) => chat.title.toLowerCase().includes(wanted)) : chats;
}

/** Both lists as one, newest first; what the first says of a chat holds. */
export function merged(live: readonly ChatSummary[], older: readonly ChatSummary[]): ChatSummary[] {
  const known = new Set(live.map((chat) => chat.id));
  return [...live, ...older.filter((chat) => !known.has(chat.id))].sort(
    (a, b) => b.last_active - a.last_active || (a.id < b.id ? -1 : 1),
  );
}

/** What a row says of its chat besides the title; the most urgent alone. */
export type Mark = "working" | "asks" | "failed" | "unread" | "quiet";

export const MARK_WORDS: Record<Mark, string> = {
  working: "is answering",
  asks: "needs you",
  failed: "has failed",
  unread: "has something new",
  quiet: "",
};

/** `lookedAt`: when the chat was last looked at here, in the server's milliseconds. */
export function markOf(chat: ChatSummary, lookedAt: number): Mark {
  if (chat.state === "paused" || chat.state === "waiting_ide") return "asks";
  if (chat.state === "generating" || chat.state === "executing_tools") return "working";
  const isNew = chat.last_active > lookedAt;
  if (chat.state === "error" && isNew) return "failed";
  return isNew ? "unread" : "quiet";
}
