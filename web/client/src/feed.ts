/**
 * The caller's chats as a list that keeps itself up to date, for a sidebar that never polls (PROTOCOL §4).
 *
 * A reconnect begins with a snapshot, so nothing is resumed and nothing can be missed.
 */

import { Backoff } from "./backoff.js";
import { after, sleep } from "./clock.js";
import { FrameParser } from "./frames.js";
import type { ChatSummary, FeedItem } from "./types.js";
import { Busy, type Wire } from "./wire.js";

/** The newest 200 chats, newest first. `refused` says why there will never be any. */
export interface ChatsList {
  chats: readonly ChatSummary[];
  hasMore: boolean;
  isLive: boolean;
  refused?: string;
}

export const NO_CHATS: ChatsList = { chats: [], hasMore: false, isLive: false };

/** The list after one item of the feed. Pure. */
export function listAfter(list: ChatsList, item: FeedItem): ChatsList {
  if (item.type === "feed_snapshot") {
    return { chats: item.chats ?? [], hasMore: item.has_more ?? false, isLive: true };
  }
  const id = item.chat?.id ?? item.chat_id;
  const others = list.chats.filter((chat) => chat.id !== id);
  if (!item.chat) return { ...list, chats: others };
  const chats = [...others, item.chat].sort((a, b) => b.last_active - a.last_active || (a.id < b.id ? -1 : 1));
  return { ...list, chats };
}

/** Tells `take` of the list now and after every change, until `signal` ends it. */
export async function followFeed(wire: Wire, take: (list: ChatsList) => void, signal: AbortSignal): Promise<void> {
  const backoff = new Backoff(wire.patience);
  let list = NO_CHATS;
  while (!signal.aborted) {
    let asked = 0;
    const connection = new AbortController();
    const end = () => connection.abort();
    signal.addEventListener("abort", end, { once: true });
    try {
      const reader = (await wire.stream("/v1/chats/feed", "", connection.signal)).getReader();
      connection.signal.addEventListener("abort", () => void reader.cancel().catch(() => {}));
      const parser = new FrameParser();
      let expected = 0;
      for (;;) {
        const { done, value } = await reader.read().finally(after(wire.patience.silenceMs, end));
        if (done) break;
        for (const frame of parser.feed(value)) {
          asked = frame.kind === "retry" ? frame.milliseconds : 0; // a goodbye is one that nothing follows
          if (frame.kind !== "event") continue;
          const item = JSON.parse(frame.data) as FeedItem;
          if (item.type === "feed_snapshot") expected = 0;
          if (item.seq !== String(expected++)) throw new Error("an event was missed");
          backoff.reset();
          take((list = listAfter(list, item)));
        }
      }
    } catch (wrong) {
      if (wrong instanceof Busy) asked = wrong.retryMs;
      else if (wrong instanceof Error && "status" in wrong) {
        return take({ ...list, isLive: false, refused: wrong.message }); // a refusal: waiting does not help
      }
    } finally {
      signal.removeEventListener("abort", end);
      connection.abort();
    }
    if (!signal.aborted) take((list = { ...list, isLive: false }));
    await sleep(backoff.pause(asked), signal);
  }
}
