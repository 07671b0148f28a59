/**
 * Keeps the list of the caller's chats up to date without polling, for a sidebar (PROTOCOL §4).
 *
 * Each connection begins with a snapshot, so there is nothing to resume.
 */

import { Backoff } from "./backoff.js";
import { now, sleep } from "./clock.js";
import { Refused } from "./errors.js";
import { Missed, readLine } from "./line.js";
import type { ChatSummary, FeedItem } from "./types.js";
import { Busy, type Wire } from "./wire.js";

/** The newest 200 chats, newest first. Times are on the clock of `performance.now()`. */
export interface ChatsList {
  chats: readonly ChatSummary[];
  hasMore: boolean;
  isLive: boolean;
  /** The reason why the server refuses the list permanently. */
  refused?: string;
  /** The reason why the list is not live. */
  reason?: string;
  /** The time of the next attempt. */
  retryAt?: number;
  /** The time at which the server last sent a byte, while a heartbeat is overdue. */
  silentSince?: number;
  /** The server does not know the caller. */
  isSignedOut?: boolean;
}

export const NO_CHATS: ChatsList = { chats: [], hasMore: false, isLive: false };

/** Returns the list after one item of the feed. Pure. */
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

/** Calls `take` with the list after every change, until it is closed. */
export class Feed {
  private readonly backoff: Backoff;
  private list = NO_CHATS;
  private isClosed = false;
  private connection = new AbortController();

  constructor(
    private readonly wire: Wire,
    private readonly take: (list: ChatsList) => void,
  ) {
    this.backoff = new Backoff(wire.retryPolicy);
    void this.run();
  }

  /** Ends the present connection, or the pause before the next one. */
  cut(): void {
    this.connection.abort();
  }

  close(): void {
    this.isClosed = true;
    this.connection.abort();
  }

  private async run(): Promise<void> {
    while (!this.isClosed) {
      this.connection = new AbortController();
      let pauseMs = 0;
      let reason = "";
      let signInMs = 0;
      try {
        [reason, pauseMs] = await this.read(this.connection);
      } catch (wrong) {
        signInMs = this.wire.signInMs(wrong);
        reason = (wrong as Error).message;
        if (wrong instanceof Refused && !signInMs) return this.tell({ isLive: false, refused: reason });
        pauseMs = wrong instanceof Busy ? wrong.retryMs : signInMs;
      }
      if (this.isClosed) return;
      const pause = this.connection.signal.aborted ? 0 : this.backoff.pause(pauseMs);
      this.tell({ isLive: false, reason: reason || "connecting again", retryAt: now() + pause, ...(signInMs && { isSignedOut: true }) });
      this.connection = new AbortController();
      await sleep(pause, this.connection.signal);
    }
  }

  /**
   * Runs one connection to its end. Returns the reason of the end, and the milliseconds for which the server asked the
   * client not to reconnect.
   */
  private async read({ signal }: AbortController): Promise<[string, number]> {
    let expected = 0;
    return readLine(await this.wire.stream("/v1/chats/feed", "", signal), signal, this.wire.retryPolicy, {
      frame: (frame) => {
        if (frame.kind !== "event") return;
        const item = JSON.parse(frame.data) as FeedItem;
        if (item.type === "feed_snapshot") expected = 0;
        if (item.seq !== String(expected++)) throw new Missed("an event was missed");
        this.backoff.reset();
        this.take((this.list = listAfter(this.list, item)));
      },
      quiet: (silentSince) => this.tell({ isLive: this.list.isLive, silentSince }),
      heard: () => this.tell({ isLive: this.list.isLive }),
    });
  }

  /** Reports a change of the connection and keeps the chats. */
  private tell(how: Omit<ChatsList, "chats" | "hasMore">): void {
    const { chats, hasMore } = this.list;
    this.list = { chats, hasMore, ...how };
    if (!this.isClosed) this.take(this.list);
  }
}
