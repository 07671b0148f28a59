/**
 * The chats that the list shows: the newest, which the feed keeps up to date, and older ones that were asked for, by
 * paging or by searching. Nothing is asked for again by a clock.
 */

import { computed, effect, signal } from "@preact/signals";
import type { ChatList, ChatSummary } from "threadcast-client";

import { ask } from "../state/actions.ts";
import { chat, chats, client, onEvent, state } from "../state/session.ts";
import { matching, merged } from "./groups.ts";

/** Older chats of one search ("" is none) that the server has told of; `cursor` null: there are no more. */
interface Pages {
  readonly words: string;
  readonly items: readonly ChatSummary[];
  readonly cursor: string | null | undefined;
}

const PAGE_COUNT = 200;
/** As long as the server lets a search be (PROTOCOL §1). */
export const SEARCH_MAX_CHARACTERS = 200;
/** Longer than between two keys of somebody who types. */
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

/** Asks for the next page of what the list now shows. */
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
      // Without a search the first page is what the feed has told already.
      if (asked || !isFirst) break;
    } while (cursor !== null);
    pages.value = { words: asked, items, cursor };
  } finally {
    isLoading.value = false;
    // Who went on typing meanwhile was turned away above, and wants to know something else by now.
    if (trimmed.peek() && trimmed.peek() !== asked) {
      clearTimeout(timer);
      void loadMore();
    }
  }
}

/** The feed forgets a chat; so must what was asked for beside it. */
export function forget(chatId: string): void {
  removed.value = new Set([...removed.peek(), chatId]);
}

let timer: ReturnType<typeof setTimeout> | undefined;
effect(() => {
  clearTimeout(timer);
  // All that there is stands in the feed's list: searching that is enough.
  if (trimmed.value && chats.value.hasMore) timer = setTimeout(() => void loadMore(), TYPING_MS);
});

/** The chats that tools of the open chat began, or of the one that began it. */
export const family = signal<{ parentId: string; chats: readonly ChatSummary[] }>({ parentId: "", chats: [] });

const parentId = computed(() => (chat.value ? state.value.thread.parent_id || chat.value.id : ""));

async function askForFamily(): Promise<void> {
  const id = parentId.peek();
  if (!id) return;
  // An unknown chat has no children yet, and is no news.
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
