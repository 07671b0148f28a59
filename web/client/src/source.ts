/**
 * Where a chat's items come from: a connection of this page's own, or one that all its tabs share.
 *
 * `Hub` is the real thing: it holds the one stream and the one feed, folds each chat that is watched, and so can begin
 * a second watcher with a snapshot of its own. `ports.ts` carries a hub to other tabs. The rule: every watcher of a chat
 * gets `opened`, then a snapshot, then every item after it.
 */

import { followFeed, NO_CHATS, type ChatsList } from "./feed.js";
import { reduce } from "./reducer.js";
import { snapshotOf, stateFromSnapshot, type ChatState } from "./state.js";
import { Stream, type Item } from "./stream.js";
import type { Wire } from "./wire.js";

type Take = (item: Item) => void;

export interface Source {
  /** Be told of a chat's items. Returns how to stop. */
  watch(chatId: string, take: Take): () => void;
  /** Be told of the list of chats. Returns how to stop. */
  follow(take: (list: ChatsList) => void): () => void;
  /** Tell other streams that somebody types in this chat, or does no longer. */
  type(chatId: string, isTyping: boolean): void;
  /** Give up the connection, to see it resume. */
  cut(): void;
  /** Lose the next event, to see the gap noticed. */
  drop(): void;
  close(): void;
}

interface Watched {
  /** Who watches, and whether it was told how things stand, with which it begins. */
  takes: Map<Take, boolean>;
  /** Null until a snapshot has come. */
  state: ChatState | null;
  id: string;
}

export class Hub implements Source {
  private readonly chats = new Map<string, Watched>();
  private readonly stream: Stream;
  private readonly followers = new Set<(list: ChatsList) => void>();
  private list = NO_CHATS;
  private feed: AbortController | null = null;
  private standing: Item | null = null;
  private hasBeaten = false;

  constructor(private readonly wire: Wire) {
    this.stream = new Stream(wire, (item) => this.take(item), true);
  }

  watch(chatId: string, take: Take): () => void {
    const watched = this.chats.get(chatId) ?? { takes: new Map<Take, boolean>(), state: null, id: "" };
    this.chats.set(chatId, watched);
    watched.takes.set(take, false);
    // Later, so that whoever watches has what this returns before the first item.
    queueMicrotask(() => watched.takes.has(take) && this.begin(chatId, watched, take));
    this.stream.add(chatId);
    return () => {
      watched.takes.delete(take);
      // Later, so that whoever goes from one chat to the next, or comes back at once, keeps the line: the last chat of a
      // stream takes it along. A task, not a microtask, since each message of a tab is a turn of its own.
      setTimeout(() => this.leave(chatId, watched));
    };
  }

  private leave(chatId: string, watched: Watched): void {
    if (watched.takes.size || this.chats.get(chatId) !== watched) return;
    this.chats.delete(chatId);
    this.stream.remove(chatId);
  }

  follow(take: (list: ChatsList) => void): () => void {
    this.followers.add(take);
    if (this.feed) queueMicrotask(() => take(this.list));
    else {
      this.feed = new AbortController();
      void followFeed(this.wire, (list) => this.tellFollowers(list), this.feed.signal);
    }
    return () => {
      this.followers.delete(take);
      if (this.followers.size) return;
      this.feed?.abort();
      this.feed = null;
      this.list = NO_CHATS;
    };
  }

  type(chatId: string, isTyping: boolean): void {
    this.stream.type(chatId, isTyping);
  }

  cut(): void {
    this.stream.cut();
  }

  drop(): void {
    this.stream.drop();
  }

  close(): void {
    this.stream.close();
    this.feed?.abort();
    this.chats.clear();
    this.followers.clear();
  }

  private begin(chatId: string, watched: Watched, take: Take): void {
    watched.takes.set(take, true);
    if (this.standing) take(this.standing);
    if (!watched.state) return;
    const event = { chat_id: chatId, seq: "0", ...snapshotOf(watched.state) };
    take({ kind: "event", chatId, event, position: watched.state.position, id: watched.id });
    if (this.hasBeaten) take({ kind: "beat" });
  }

  private take(item: Item): void {
    if (item.kind === "opened" || item.kind === "lost") {
      this.standing = item;
      this.hasBeaten = false;
    }
    this.hasBeaten ||= item.kind === "beat";
    if (!("chatId" in item)) {
      for (const watched of this.chats.values()) tell(watched, item);
      return;
    }
    const watched = this.chats.get(item.chatId);
    if (!watched) return;
    if (item.kind === "gone") this.chats.delete(item.chatId);
    if (item.kind === "event") {
      const { chatId, event, position, id } = item;
      watched.id = id;
      if (event.type === "snapshot") watched.state = stateFromSnapshot(chatId, event, position);
      else if (watched.state) watched.state = reduce(watched.state, event);
    }
    tell(watched, item);
  }

  private tellFollowers(list: ChatsList): void {
    this.list = list;
    for (const take of [...this.followers]) take(list);
  }
}

function tell(watched: Watched, item: Item): void {
  for (const [take, isBegun] of [...watched.takes]) if (isBegun) take(item);
}
