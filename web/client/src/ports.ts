/**
 * Gives other tabs access to a hub by messages: `serve` runs beside the hub, and each tab uses a `RemoteHub`, which is
 * a `Source` too. A port is either the port of a SharedWorker or an address on a BroadcastChannel. A port does not
 * report that its tab was closed, so each tab holds a Web Lock while it is open, and the hub's side waits for that
 * lock. Messages of one port arrive in order; there are no replies to single messages.
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

/** A message from a tab to the hub. */
export type Wish =
  | { do: "watch" | "unwatch" | "look"; chatId: string }
  | { do: "type"; chatId: string; isTyping: boolean }
  | { do: "follow" | "unfollow" | "cut" | "drop" | "bye" };

/**
 * A message from the hub to a tab. Errors cannot be sent between threads, so their fields are sent. Clocks of two
 * threads differ, so the times of a list are sent relative to now, in milliseconds. `here` reports that a hub has
 * answered.
 */
type Report =
  | { on: "here" }
  | { on: "item"; chatId: string; item: Exclude<Item, { kind: "gone" }> }
  | { on: "gone"; chatId: string; message: string; code: string; status: number }
  | { on: "list"; list: ChatsList };

/** Carries out a tab's requests until the tab sends `bye` or releases `lock`. */
export function serve(hub: Source, port: Port, lock?: string): void {
  const watched = new Map<string, () => void>();
  let unfollow: (() => void) | null = null;
  const post = (report: Report) => port.post(report);
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

/** A hub in another thread or tab. While no port is set (before `move`, and between two ports), requests are kept. */
export class RemoteHub implements Source {
  private readonly takes = new Map<string, Set<(item: Item) => void>>();
  private readonly followers = new Set<(list: ChatsList) => void>();
  private list = NO_CHATS;
  private port: Port | null = null;
  private lookedAt = "";
  /** This function is called when a hub has answered at the present port. */
  onHere = () => {};

  /** Uses the hub at this port from now on; null if there is no hub yet. */
  move(port: Port | null): void {
    this.port = port;
    port?.listen((message) => this.port === port && this.take(message as Report));
    this.begin();
  }

  /** Sends all present requests to a hub that does not know them yet. */
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
    // A second watcher in the same tab needs its own snapshot, so the hub sends the beginning to all watchers again.
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

  /** Lets the hub forget this tab. The tab keeps its requests for the next hub. */
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

  private take(report: Report): void {
    if (report.on === "here") return this.onHere();
    if (report.on === "list") {
      this.list = shifted(report.list, now());
      for (const take of [...this.followers]) take(this.list);
      return;
    }
    if (report.on === "gone") {
      const wrong = new Refused(report.message, report.code, report.status);
      const takes = this.takes.get(report.chatId);
      this.takes.delete(report.chatId);
      for (const take of [...(takes ?? [])]) take({ kind: "gone", chatId: report.chatId, wrong });
      return;
    }
    for (const take of [...(this.takes.get(report.chatId) ?? [])]) take(report.item);
  }
}
