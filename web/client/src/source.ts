/**
 * Delivers the items of chats, over the page's own connections or over a connection that all tabs share. `Hub` holds
 * the streams and the feed of chats. The hub folds each watched chat, so that it can make the snapshot with which a
 * second watcher begins. `ports.ts` gives other tabs access to a hub. Every watcher of a chat receives `opened`, then a
 * snapshot, then every later item.
 */

import { now } from "./clock.js";
import { Feed, NO_CHATS, type ChatsList } from "./feed.js";
import { reduce } from "./reducer.js";
import { snapshotOf, stateFromSnapshot, type ChatState } from "./state.js";
import { Stream, type Item } from "./stream.js";
import type { Wire } from "./wire.js";

type Take = (item: Item) => void;

export interface Source {
  /** Calls `take` with the items of a chat. Returns a function that ends the calls. */
  watch(chatId: string, take: Take): () => void;
  /** Marks this chat as viewed now: if not all chats fit, the most recently viewed chats are live. */
  look(chatId: string): void;
  /** Calls `take` with the list of chats after each change. Returns a function that ends the calls. */
  follow(take: (list: ChatsList) => void): () => void;
  /** Tells other clients that a person is typing in this chat, or has stopped. */
  type(chatId: string, isTyping: boolean): void;
  /** Ends the connections, or the pauses before the next ones, so that the streams reconnect at once. */
  cut(): void;
  /** Drops the next event, so that developers see how the gap is handled. */
  drop(): void;
  close(): void;
}

/** The most chats that one stream carries (PROTOCOL §18). */
export const CHATS_MAX = 64;

/** One connection and its state, which a new watcher receives first. */
interface Line {
  readonly stream: Stream;
  readonly chats: Set<string>;
  standing: Item | null;
  standingAt: number;
  /** The time of the last byte while a heartbeat is overdue; otherwise null. */
  quietSince: number | null;
  hasBeaten: boolean;
}

interface Watched {
  /** Maps each watcher to whether it has received the state of the connection, which is its first item. */
  readonly takes: Map<Take, boolean>;
  /** Null while the chat has no connection. */
  line: Line | null;
  /** Null until a snapshot has arrived. */
  state: ChatState | null;
  id: string;
  /** The number of the chat's last view, counted over all chats; 0 if it was not viewed yet. */
  lookedAt: number;
}

export class Hub implements Source {
  private readonly chats = new Map<string, Watched>();
  private readonly lines: Line[] = [];
  private readonly followers = new Set<(list: ChatsList) => void>();
  private list = NO_CHATS;
  private feed: Feed | null = null;
  private looks = 0;

  /**
   * `linesMax` is the maximum number of connections for chats. A program opens as many connections as its chats need.
   * The tabs of a browser share one connection, because browsers allow six connections to a host over HTTP/1.1; chats
   * for which this connection has no room are resting until a person views them.
   */
  constructor(
    private readonly wire: Wire,
    private readonly linesMax = Infinity,
  ) {}

  watch(chatId: string, take: Take): () => void {
    const watched: Watched = this.chats.get(chatId) ?? { takes: new Map(), line: null, state: null, id: "", lookedAt: 0 };
    this.chats.set(chatId, watched);
    watched.takes.set(take, false);
    // In a microtask, so that the caller has the returned function before the first item.
    queueMicrotask(() => watched.takes.has(take) && this.begin(chatId, watched, take));
    this.assign(chatId, watched);
    return () => {
      watched.takes.delete(take);
      // A stream without chats closes its connection. The delay keeps the connection open if the person opens another
      // chat or returns at once. It is a task, not a microtask, because each message of a tab arrives in its own task.
      setTimeout(() => this.leave(chatId, watched));
    };
  }

  look(chatId: string): void {
    const watched = this.chats.get(chatId);
    if (!watched) return;
    watched.lookedAt = ++this.looks;
    this.assign(chatId, watched);
  }

  private leave(chatId: string, watched: Watched): void {
    if (watched.takes.size || this.chats.get(chatId) !== watched) return;
    this.chats.delete(chatId);
    this.release(chatId, watched);
    this.fill();
  }

  /**
   * Assigns a chat to a connection with room, to a new connection, or to the place of the least recently viewed chat.
   */
  private assign(chatId: string, watched: Watched): void {
    if (watched.line) return;
    let line = this.lines.find(({ chats }) => chats.size < CHATS_MAX);
    if (!line && this.lines.length < this.linesMax) line = this.newLine();
    if (!line) {
      const assigned = [...this.chats].filter(([, other]) => other.line);
      const [oldestId, oldest] = assigned.reduce((a, b) => (b[1].lookedAt < a[1].lookedAt ? b : a));
      if (oldest.lookedAt >= watched.lookedAt) return;
      line = oldest.line as Line;
      this.release(oldestId, oldest);
      tell(oldest, { kind: "resting" });
    }
    watched.line = line;
    line.chats.add(chatId);
    line.stream.add(chatId);
    for (const item of standingOf(line)) tell(watched, item);
  }

  private release(chatId: string, watched: Watched): void {
    watched.line?.chats.delete(chatId);
    watched.line?.stream.remove(chatId);
    watched.line = watched.state = null;
  }

  /** Gives a free place to the most recently viewed resting chat. */
  private fill(): void {
    const resting = [...this.chats].filter(([, watched]) => !watched.line);
    if (!resting.length) return;
    this.assign(...resting.reduce((a, b) => (b[1].lookedAt > a[1].lookedAt ? b : a)));
  }

  private newLine(): Line {
    const line: Line = {
      stream: new Stream(this.wire, (item) => this.take(line, item), true),
      chats: new Set(),
      standing: null,
      standingAt: 0,
      quietSince: null,
      hasBeaten: false,
    };
    this.lines.push(line);
    return line;
  }

  follow(take: (list: ChatsList) => void): () => void {
    this.followers.add(take);
    if (this.feed) queueMicrotask(() => take(this.list));
    else this.feed = new Feed(this.wire, (list) => this.tellFollowers(list));
    return () => {
      this.followers.delete(take);
      if (this.followers.size) return;
      this.feed?.close();
      this.feed = null;
      this.list = NO_CHATS;
    };
  }

  type(chatId: string, isTyping: boolean): void {
    this.chats.get(chatId)?.line?.stream.type(chatId, isTyping);
  }

  cut(): void {
    for (const { stream } of this.lines) stream.cut();
    this.feed?.cut();
  }

  drop(): void {
    for (const { stream } of this.lines) stream.drop();
  }

  close(): void {
    for (const { stream } of this.lines) stream.close();
    this.feed?.close();
    this.chats.clear();
    this.followers.clear();
  }

  private begin(chatId: string, watched: Watched, take: Take): void {
    watched.takes.set(take, true);
    const { line, state } = watched;
    if (!line) return take({ kind: "resting" });
    for (const item of standingOf(line)) take(item);
    if (!state) return;
    const event = { chat_id: chatId, seq: "0", ...snapshotOf(state) };
    take({ kind: "event", chatId, event, position: state.position, id: watched.id });
    if (line.hasBeaten) take({ kind: "beat" });
    if (line.quietSince !== null) take({ kind: "quiet", forMs: now() - line.quietSince });
  }

  private take(line: Line, item: Item): void {
    if (item.kind === "opened" || item.kind === "lost") {
      line.standing = item;
      line.standingAt = now();
      line.hasBeaten = false;
      line.quietSince = null;
    }
    if (item.kind === "quiet") line.quietSince = now() - item.forMs;
    else if (item.kind === "heard") line.quietSince = null;
    line.hasBeaten ||= item.kind === "beat";
    if (!("chatId" in item)) {
      for (const chatId of line.chats) tell(this.chats.get(chatId), item);
      return;
    }
    const watched = this.chats.get(item.chatId);
    if (watched?.line !== line) return;
    if (item.kind === "gone") {
      this.chats.delete(item.chatId);
      line.chats.delete(item.chatId);
    }
    if (item.kind === "event") {
      const { chatId, event, position, id } = item;
      watched.id = id;
      if (event.type === "snapshot") watched.state = stateFromSnapshot(chatId, event, position);
      else if (watched.state) watched.state = reduce(watched.state, event);
    }
    tell(watched, item);
    if (item.kind === "gone") this.fill();
  }

  private tellFollowers(list: ChatsList): void {
    this.list = list;
    for (const take of [...this.followers]) take(list);
  }
}

/** Returns the last reported state of a connection, with the remaining time to the next try. */
function standingOf({ standing, standingAt }: Line): Item[] {
  if (standing?.kind !== "lost") return standing ? [standing] : [];
  return [{ ...standing, retryMs: Math.max(0, standing.retryMs - (now() - standingAt)) }];
}

function tell(watched: Watched | undefined, item: Item): void {
  for (const [take, isBegun] of [...(watched?.takes ?? [])]) if (isBegun) take(item);
}
