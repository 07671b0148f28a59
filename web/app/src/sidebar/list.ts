/**
 * The chats that the list shows: the newest chats, which the feed keeps up to date, and older chats that were fetched
 * by paging or searching. Nothing is polled.
 */

import { computed, effect, signal } from "@preact/signals";
import type { ChatList, ChatSummary } from "threadcast-client";

import { ask } from "../state/actions.ts";
import { chat, chats, client, onEvent, state } from "../state/session.ts";
import { matching, merged } from "./groups.ts";

/** Older chats that were fetched for one search ("" for none). `cursor` is null if there are no further chats. */
interface Pages {
  readonly words: string;
  readonly items: readonly ChatSummary[];
  readonly cursor: string | null | undefined;
}

const PAGE_COUNT = 200;
/** The longest search that the server accepts (PROTOCOL §1). */
export const SEARCH_MAX_CHARACTERS = 200;
/** The pause in typing after which the search begins: longer than the time between two keys of a person who types. */
const TYPING_MS = 180;

export const words = signal("");
export const isLoading = signal(false);
const pages = signal<Pages>({ words: "", items: [], cursor: undefined });
const removed = signal<ReadonlySet<string>>(new Set());

const trimmed = computed(() => words.value.trim());

export const listed = computed<readonly ChatSummary[]>(() => {
  const live = chats.value.chats;
  const known = new Set(live.map(({ id }) => id));
  const older = pages.value.words === trimmed.value ? pages.value.items : [];
  const unknown = older.filter(({ id }) => !known.has(id) && !removed.value.has(id));
  return merged(matching(live, trimmed.value), unknown);
});

export const hasMore = computed(() => {
  const { words: asked, cursor } = pages.value;
  return asked === trimmed.value && cursor !== undefined ? cursor !== null : chats.value.hasMore;
});

/** Fetches the next page of the list or of the search. */
export async function loadMore(): Promise<void> {
  if (isLoading.peek()) return;
  isLoading.value = true;
  const asked = trimmed.peek();
  try {
    const isSame = pages.peek().words === asked;
    let { items, cursor } = isSame ? pages.peek() : { items: [], cursor: undefined };
    do {
      const isFirst = cursor === undefined;
      const query = new URLSearchParams({ limit: String(PAGE_COUNT), ...(asked && { q: asked }), ...(cursor && { cursor }) });
      const page = await ask<ChatList>("GET", `/v1/chats?${query}`);
      if (!page || asked !== trimmed.peek()) return;
      items = [...items, ...page.items];
      cursor = page.next_cursor;
      // Without a search the feed has already delivered the first page.
      if (asked || !isFirst) break;
    } while (cursor !== null);
    pages.value = { words: asked, items, cursor };
  } finally {
    isLoading.value = false;
    // If the person has changed the search meanwhile, this answer is for an old search.
    if (trimmed.peek() && trimmed.peek() !== asked) {
      clearTimeout(timer);
      void loadMore();
    }
  }
}

/** Removes a chat from the fetched pages too when it leaves the feed. */
export function forget(chatId: string): void {
  removed.value = new Set([...removed.peek(), chatId]);
}

let timer: ReturnType<typeof setTimeout> | undefined;
effect(() => {
  clearTimeout(timer);
  // The feed's list contains all chats, so searching it is enough.
  if (trimmed.value && chats.value.hasMore) timer = setTimeout(() => void loadMore(), TYPING_MS);
});

/** The chats that tools started from the open chat, or from its parent. */
export const family = signal<{ parentId: string; chats: readonly ChatSummary[] }>({ parentId: "", chats: [] });

const parentId = computed(() => (chat.value ? state.value.thread.parent_id || chat.value.id : ""));

async function askForFamily(): Promise<void> {
  const id = parentId.peek();
  if (!id) return;
  // A chat that the server does not know yet has no children; this is not an error.
  const found = await client.get<ChatList>(`/v1/chats?parent_id=${id}&limit=${PAGE_COUNT}`).catch(() => null);
  if (id === parentId.peek()) family.value = { parentId: id, chats: found?.items ?? [] };
}

const isBegun = computed(() => state.value.position > 0);
effect(() => {
  if (parentId.value !== family.peek().parentId) family.value = { parentId: parentId.value, chats: [] };
  if (isBegun.value) void askForFamily();
});
onEvent((event) => {
  if (event.type === "subchat_update") void askForFamily();
});
