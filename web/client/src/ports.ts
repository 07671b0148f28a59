/**
 * A hub for other tabs: the same `Source`, over messages.
 *
 * `serve` stands beside the hub, `RemoteHub` in each tab. A port may be that of a SharedWorker or an address on a
 * BroadcastChannel. Ports say nothing when a tab is gone, so each tab holds a Web Lock for as long as it lives, and
 * the hub's side waits for it. The rule: messages of one port arrive in order, and nothing is answered.
 */

import { now } from "./clock.js";
import { Refused } from "./errors.js";
import { NO_CHATS, type ChatsList } from "./feed.js";
import type { Source } from "./source.js";
import type { Item } from "./stream.js";

export interface Port {
  post(message: unknown): void;
  listen(take: (message: unknown) => void): void;
}

/** From a tab to the hub. */
export type Wish =
  | { do: "watch" | "unwatch" | "look"; chatId: string }
  | { do: "type"; chatId: string; isTyping: boolean }
  | { do: "follow" | "unfollow" | "cut" | "drop" | "bye" };

/**
 * From the hub to a tab. An error does not survive the way, its fields do; and clocks of two threads differ, so times of
 * a list are told as milliseconds from now. `here`: a hub is at the other end. */
type News =
  | { on: "here" }
  | { on: "item"; chatId: string; item: Exclude<Item, { kind: "gone" }> }
  | { on: "gone"; chatId: string; message: string; code: string; status: number }
  | { on: "list"; list: ChatsList };

/** Carry out a tab's wishes until it says bye, or lets go of `lock`. */
export function serve(hub: Source, port: Port, lock?: string): void {
  const watched = new Map<string, () => void>();
  let unfollow: (() => void) | null = null;
  const post = (news: News) => port.post(news);
  post({ on: "here" });
  const end = () => {
    for (const unwatch of watched.values()) unwatch();
    watched.clear();
    unfollow?.();
    unfollow = null;
  };
  const tell = (chatId: string, item: Item) => {
    if (item.kind !== "gone") return post({ on: "item", chatId, item });
    watched.delete(chatId);
    const { message, code, status } = item.wrong;
    post({ on: "gone", chatId, message, code, status });
  };
  port.listen((message) => {
    const wish = message as Wish;
    if (wish.do === "watch" && !watched.has(wish.chatId)) {
      const { chatId } = wish;
      watched.set(chatId, hub.watch(chatId, (item) => tell(chatId, item)));
    } else if (wish.do === "unwatch") {
      watched.get(wish.chatId)?.();
      watched.delete(wish.chatId);
    } else if (wish.do === "look") {
      hub.look(wish.chatId);
    } else if (wish.do === "type") {
      hub.type(wish.chatId, wish.isTyping);
    } else if (wish.do === "follow") {
      unfollow ??= hub.follow((list) => post({ on: "list", list: shifted(list, -now()) }));
    } else if (wish.do === "unfollow") {
      unfollow?.();
      unfollow = null;
    } else if (wish.do === "cut") hub.cut();
    else if (wish.do === "drop") hub.drop();
    else if (wish.do === "bye") end();
  });
  if (lock && typeof navigator !== "undefined" && navigator.locks) void navigator.locks.request(lock, end);
}

/** Returns the same list with its times moved from one clock to another. */
function shifted(list: ChatsList, byMs: number): ChatsList {
  const { retryAt, silentSince } = list;
  return {
    ...list,
    ...(retryAt !== undefined && { retryAt: retryAt + byMs }),
    ...(silentSince !== undefined && { silentSince: silentSince + byMs }),
  };
}

/** A hub in another thread or tab. Until `move` sets a port, and between two ports, requests are kept. */
export class RemoteHub implements Source {
  private readonly takes = new Map<string, Set<(item: Item) => void>>();
  private readonly followers = new Set<(list: ChatsList) => void>();
  private list = NO_CHATS;
  private port: Port | null = null;
  private lookedAt = "";
  /** A hub has answered at the present port. */
  onHere = () => {};

  /** From now on the hub is at this port; null: nowhere yet. */
  move(port: Port | null): void {
    this.port = port;
    port?.listen((message) => this.port === port && this.take(message as News));
    this.begin();
  }

  /** Another hub stands at the other end: tell it all that is wanted. */
  begin(): void {
    for (const chatId of this.takes.keys()) this.wish({ do: "watch", chatId });
    if (this.lookedAt) this.wish({ do: "look", chatId: this.lookedAt });
    if (this.followers.size) this.wish({ do: "follow" });
  }

  look(chatId: string): void {
    this.lookedAt = chatId;
    this.wish({ do: "look", chatId });
  }

  watch(chatId: string, take: (item: Item) => void): () => void {
    // A second watcher in the same tab needs a beginning of its own: the hub gives it to all of them once more.
    const takes = this.takes.get(chatId) ?? new Set();
    if (takes.size) this.wish({ do: "unwatch", chatId });
    this.takes.set(chatId, takes.add(take));
    this.wish({ do: "watch", chatId });
    return () => {
      takes.delete(take);
      if (takes.size || this.takes.get(chatId) !== takes) return;
      this.takes.delete(chatId);
      this.wish({ do: "unwatch", chatId });
    };
  }

  follow(take: (list: ChatsList) => void): () => void {
    this.followers.add(take);
    if (this.followers.size === 1) this.wish({ do: "follow" });
    else queueMicrotask(() => take(this.list));
    return () => {
      this.followers.delete(take);
      if (!this.followers.size) this.wish({ do: "unfollow" });
    };
  }

  type(chatId: string, isTyping: boolean): void {
    this.wish({ do: "type", chatId, isTyping });
  }

  cut(): void {
    this.wish({ do: "cut" });
  }

  drop(): void {
    this.wish({ do: "drop" });
  }

  /** The hub may forget this tab, which keeps what it wants for the next one. */
  bye(): void {
    this.wish({ do: "bye" });
  }

  close(): void {
    this.bye();
    this.takes.clear();
    this.followers.clear();
  }

  private wish(wish: Wish): void {
    this.port?.post(wish);
  }

  private take(news: News): void {
    if (news.on === "here") return this.onHere();
    if (news.on === "list") {
      this.list = shifted(news.list, now());
      for (const take of [...this.followers]) take(this.list);
      return;
    }
    if (news.on === "gone") {
      const wrong = new Refused(news.message, news.code, news.status);
      const takes = this.takes.get(news.chatId);
      this.takes.delete(news.chatId);
      for (const take of [...(takes ?? [])]) take({ kind: "gone", chatId: news.chatId, wrong });
      return;
    }
    for (const take of [...(this.takes.get(news.chatId) ?? [])]) take(news.item);
  }
}
