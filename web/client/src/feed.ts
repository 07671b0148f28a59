/**
 * The caller's chats as a list that keeps itself up to date, for a sidebar that never polls (PROTOCOL §4).
 *
 * A reconnect begins with a snapshot, so nothing is resumed and nothing can be missed.
 */

import { Backoff } from "./backoff.js";
import { after, now, sleep } from "./clock.js";
import { isSignedOut, Refused, ThreadcastError } from "./errors.js";
import { FrameParser } from "./frames.js";
import type { ChatSummary, FeedItem } from "./types.js";
import { Busy, type Wire } from "./wire.js";

/** The newest 200 chats, newest first. Times are those of `performance.now()`. */
export interface ChatsList {
  chats: readonly ChatSummary[];
  hasMore: boolean;
  isLive: boolean;
  /** The server refuses, and waiting does not help. */
  refused?: string;
  /** Why the list is not live. */
  reason?: string;
  /** When the next try is. */
  retryAt?: number;
  /** When the server last sent a byte, while a heartbeat is overdue. */
  silentSince?: number;
  /** The server does not know the caller. */
  isSignedOut?: boolean;
}

export const NO_CHATS: ChatsList = { chats: [], hasMore: false, isLive: false };

/** The wait before a server that does not know the caller is asked again; a sign-in ends the wait. */
const SIGN_IN_MS = 30_000;

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

/** Tells `take` of the list after every change, until it is closed. */
export class Feed {
  private readonly backoff: Backoff;
  private list = NO_CHATS;
  private isClosed = false;
  private connection = new AbortController();

  constructor(
    private readonly wire: Wire,
    private readonly take: (list: ChatsList) => void,
  ) {
    this.backoff = new Backoff(wire.patience);
    void this.run();
  }

  /** Gives up the present connection, or the pause before the next. */
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
      let isOut = false;
      try {
        [reason, pauseMs] = await this.read(this.connection);
      } catch (wrong) {
        isOut = this.wire.awaitsSignIn && isSignedOut(wrong);
        // Whatever else reading throws has a name of the browser's own.
        reason = wrong instanceof Busy || wrong instanceof ThreadcastError ? wrong.message : "the connection broke";
        if (wrong instanceof Refused && !isOut) return this.tell({ isLive: false, refused: reason });
        pauseMs = isOut ? SIGN_IN_MS : wrong instanceof Busy ? wrong.retryMs : 0;
      }
      if (this.isClosed) return;
      const pause = this.connection.signal.aborted ? 0 : this.backoff.pause(pauseMs);
      this.tell({ isLive: false, reason, retryAt: now() + pause, ...(isOut && { isSignedOut: true }) });
      this.connection = new AbortController();
      await sleep(pause, this.connection.signal);
    }
  }

  /** Runs one connection to its end. Returns why it ended, and how long the server asked to stay away, in milliseconds. */
  private async read(connection: AbortController): Promise<[string, number]> {
    const { quietMs, silenceMs } = this.wire.patience;
    const reader = (await this.wire.stream("/v1/chats/feed", "", connection.signal)).getReader();
    const stop = () => void reader.cancel().catch(() => {});
    connection.signal.addEventListener("abort", stop, { once: true });
    const parser = new FrameParser();
    let reason = "the server ended the stream";
    let asked = 0;
    let expected = 0;
    let cancel = () => {};
    try {
      for (;;) {
        const heardAt = now();
        const giveUp = () => {
          reason = "the line fell silent";
          stop();
        };
        const tell = () => {
          this.tell({ isLive: this.list.isLive, silentSince: heardAt });
          cancel = after(Math.max(0, heardAt + silenceMs - now()), giveUp);
        };
        cancel = quietMs < silenceMs ? after(quietMs, tell) : after(silenceMs, giveUp);
        const { done, value } = await reader.read().finally(() => cancel());
        if (done) return [asked ? "the server is shutting down" : reason, asked];
        if (this.list.silentSince !== undefined) this.tell({ isLive: this.list.isLive });
        for (const frame of parser.feed(value)) {
          asked = frame.kind === "retry" ? frame.milliseconds : 0; // a goodbye is one that nothing follows
          if (frame.kind !== "event") continue;
          const item = JSON.parse(frame.data) as FeedItem;
          if (item.type === "feed_snapshot") expected = 0;
          if (item.seq !== String(expected++)) return ["an event was missed", 0];
          this.backoff.reset();
          this.take((this.list = listAfter(this.list, item)));
        }
      }
    } finally {
      connection.signal.removeEventListener("abort", stop);
      stop();
    }
  }

  /** Reports a change of the connection; the chats stay. */
  private tell(how: Omit<ChatsList, "chats" | "hasMore">): void {
    const { chats, hasMore } = this.list;
    this.list = { chats, hasMore, ...how };
    if (!this.isClosed) this.take(this.list);
  }
}
