/**
 * Reads one stream of several chats, and reconnects whenever a connection ends. The stream resumes where it stopped,
 * and it notices missing events and silent connections.
 *
 * The stream calls `take` with each item, in order, and folds no events. After a loss that cannot be resumed the next
 * event of a chat is a snapshot, and no event arrives twice (PROTOCOL §4).
 */

import { Backoff } from "./backoff.js";
import { after, now, sleep } from "./clock.js";
import { Refused, Unreachable } from "./errors.js";
import { FrameTooLarge } from "./frames.js";
import { newId } from "./ids.js";
import { Missed, readLine } from "./line.js";
import { StreamIds } from "./stream_ids.js";
import type { TransientEvent, WireEvent } from "./types.js";
import { Busy, pathOf, type Wire } from "./wire.js";

/** An event of a chat, or a transient frame, which has no `seq` (presence, typing, `chat_removed`). */
export type Arrived = { [key: string]: unknown; chat_id: string; type: string; seq?: string };

export type Item =
  /**
   * A connection is open, and missed events follow. `isResumed`: the connection was asked to continue where the
   * previous connection ended.
   */
  | { kind: "opened"; isResumed: boolean }
  /** The connection ended or could not be opened. The next attempt starts in `retryMs` milliseconds. */
  | { kind: "lost"; reason: string; retryMs: number; isSignedOut?: boolean }
  /** A heartbeat is overdue: no byte has arrived for `forMs` milliseconds. */
  | { kind: "quiet"; forMs: number }
  /** Bytes arrive again. */
  | { kind: "heard" }
  /** This chat has no connection at present, because other chats were viewed more recently. */
  | { kind: "resting" }
  /** A heartbeat: the connection is alive, and the server has nothing left to send. */
  | { kind: "beat" }
  /** `position` is 0 if the id does not contain it. */
  | { kind: "event"; chatId: string; event: WireEvent; position: number; id: string }
  /** An event of this chat is missing: event `got` arrived instead of `expected`, so a snapshot is requested. */
  | { kind: "missed"; chatId: string; expected: number; got: number }
  | { kind: "transient"; chatId: string; event: TransientEvent }
  /** The server refuses this chat; the others continue. */
  | { kind: "gone"; chatId: string; wrong: Refused };

export class Stream {
  private readonly name = newId();
  private readonly chats = new Set<string>();
  private readonly seqs = new Map<string, number>();
  private readonly streamIds = new StreamIds();
  private readonly backoff: Backoff;
  private lastEventId = "";
  private retryMs = 0;
  private isOpen = false;
  private isPausing = false;
  private isRunning = false;
  private isClosed = false;
  private isChanging = false;
  private readonly added = new Set<string>();
  private readonly removed = new Set<string>();
  private dropNext = false;
  private connection = new AbortController();

  constructor(
    private readonly wire: Wire,
    private readonly take: (item: Item) => void,
    private readonly presence = false,
  ) {
    this.backoff = new Backoff(wire.retryPolicy);
  }

  /** Adds a chat to the stream. Its first item is a snapshot or `gone`. */
  add(chatId: string): void {
    if (this.chats.has(chatId)) return;
    this.chats.add(chatId);
    this.added.add(chatId);
    if (!this.isRunning) void this.run();
    else void this.change();
  }

  /** Removes a chat from the stream. Without chats the stream closes its connection and forgets its position. */
  remove(chatId: string): void {
    if (!this.chats.delete(chatId)) return;
    this.seqs.delete(chatId);
    this.removed.add(chatId);
    if (this.chats.size === 0) this.resync();
    else void this.change();
  }

  /**
   * Tells the other streams of this chat that a person is typing here, or has stopped. A failed request is ignored,
   * because the message is repeated.
   */
  type(chatId: string, isTyping: boolean): void {
    const body = JSON.stringify({ typing: isTyping, stream_id: this.name });
    this.wire.ask("POST", pathOf("chats", chatId, "typing"), body).catch(() => {});
  }

  /** Reconnects and starts every chat again with a snapshot. */
  resync(): void {
    this.forget();
    this.connection.abort();
  }

  /**
   * Ends the present connection, or the pause before the next one; the next connection resumes. A connection that is
   * being opened is kept, so that simultaneous calls of nine tabs open only one connection.
   */
  cut(): void {
    if (this.isOpen || this.isPausing) this.connection.abort();
  }

  /** Drops the next event, as a faulty relay might, so that developers see how the gap is handled. */
  drop(): void {
    this.dropNext = true;
  }

  close(): void {
    this.isClosed = true;
    this.connection.abort();
  }

  private async run(): Promise<void> {
    this.isRunning = true;
    while (this.chats.size && !this.isClosed) {
      this.connection = new AbortController();
      const { signal } = this.connection;
      let reason = "";
      let signInMs = 0;
      try {
        reason = await this.connect(signal);
      } catch (wrong) {
        if (!(wrong instanceof Refused)) throw wrong;
        this.retryMs = signInMs = this.wire.signInMs(wrong);
        reason = signInMs ? wrong.message : await this.findTheGone(wrong, signal);
      }
      this.isOpen = false;
      if (!this.chats.size || this.isClosed) break;
      const pause = signal.aborted && !reason ? 0 : this.backoff.pause(this.retryMs);
      this.take({ kind: "lost", reason: reason || "connecting again", retryMs: pause, ...(signInMs && { isSignedOut: true }) });
      this.connection = new AbortController();
      this.isPausing = true;
      await sleep(pause, this.connection.signal);
      this.isPausing = false;
    }
    this.isRunning = false;
    this.forget();
  }

  /**
   * Runs one connection to its end. Returns the reason of the end, or "" if this client ended the connection. Throws
   * Refused.
   */
  private async connect(signal: AbortSignal): Promise<string> {
    this.retryMs = 0;
    this.added.clear(); // the new connection asks for all wanted chats
    this.removed.clear();
    const openedAt = now();
    const query = new URLSearchParams([...this.chats].map((chatId) => ["chat_id", chatId]));
    query.set("stream_id", this.name);
    if (this.presence) query.set("presence", "1");
    let reason = "";
    try {
      const isResumed = this.lastEventId !== "";
      const bytes = await this.wire.stream(`/v1/chats/subscribe?${query}`, this.lastEventId, signal);
      this.isOpen = true;
      this.take({ kind: "opened", isResumed });
      [reason, this.retryMs] = await readLine(bytes, signal, this.wire.retryPolicy, {
        frame: (frame) => {
          if (frame.kind === "comment") this.take({ kind: "beat" });
          else if (frame.kind === "event") this.arrived(frame.data, frame.id);
        },
        quiet: () => this.take({ kind: "quiet", forMs: this.wire.retryPolicy.quietMs }),
        heard: () => this.take({ kind: "heard" }),
      });
    } catch (wrong) {
      if (wrong instanceof Busy) this.retryMs = wrong.retryMs;
      else if (wrong instanceof Missed || wrong instanceof FrameTooLarge) this.forget();
      else if (!(wrong instanceof Unreachable)) throw wrong;
      if (!signal.aborted) reason = wrong.message;
    }
    // The pauses start small again only after a connection that lasted, so that a server which drops connections at
    // once is not flooded.
    if (now() - openedAt > this.wire.retryPolicy.pauseMaxMs) this.backoff.reset();
    return reason;
  }

  private arrived(data: string, id: string): void {
    let event: Arrived;
    try {
      event = JSON.parse(data) as Arrived;
    } catch {
      return; // not JSON, so no event
    }
    const { chat_id: chatId, seq } = event;
    if (!this.chats.has(chatId)) return; // sent before the server removed the chat
    if (seq === undefined) return this.transient(chatId, event);
    if (this.dropNext && event.type !== "snapshot") {
      this.dropNext = false;
      return;
    }
    const expected = event.type === "snapshot" ? 0 : (this.seqs.get(chatId) ?? NaN) + 1;
    if (+seq !== expected) {
      this.take({ kind: "missed", chatId, expected: expected || 0, got: +seq });
      throw new Missed(`event ${seq} came where ${expected || "a snapshot"} was due`);
    }
    this.seqs.set(chatId, +seq);
    this.lastEventId = id;
    const position = this.streamIds.positionOf(id);
    this.take({ kind: "event", chatId, event: event as unknown as WireEvent, position, id });
  }

  private transient(chatId: string, event: Arrived): void {
    if (event.type !== "chat_removed") return this.take({ kind: "transient", chatId, event: event as unknown as TransientEvent });
    this.seqs.delete(chatId);
    if (event.reason === "removed") return;
    if (event.reason === "unavailable") {
      // The connection continues; this chat is requested again after a pause.
      after(this.backoff.pause(500), () => {
        this.added.add(chatId);
        void this.change();
      });
      return;
    }
    this.chats.delete(chatId);
    const wrong =
      event.reason === "not_found"
        ? new Refused(`there is no chat ${chatId}`, "not_found", 404)
        : new Refused("this server cannot read the chat", "unavailable", 503);
    this.take({ kind: "gone", chatId, wrong });
  }

  /**
   * Sends the chats that were added and removed since the last request in one request, so that removed chats make room
   * for added chats. If the request fails, the stream reconnects with the chats that are wanted now.
   */
  private async change(): Promise<void> {
    if (!this.isOpen) return this.connection.abort();
    if (this.isChanging) return;
    this.isChanging = true;
    await Promise.resolve(); // a change from one chat to another takes two calls
    while (this.isOpen && (this.added.size || this.removed.size)) {
      const add = [...this.added].filter((chatId) => this.chats.has(chatId)).map((chatId) => ({ chat_id: chatId }));
      const body = JSON.stringify({ add, remove: [...this.removed] });
      this.added.clear();
      this.removed.clear();
      try {
        await this.wire.ask("POST", pathOf("streams", this.name), body);
      } catch {
        this.connection.abort(); // perhaps a chat was deleted; the new connection will show which
        break;
      }
    }
    this.isChanging = false;
  }

  /**
   * Finds the chats that do not exist by requesting each, since the server does not say which chat is missing (PROTOCOL
   * §4).
   */
  private async findTheGone(refused: Refused, signal: AbortSignal): Promise<string> {
    for (const chatId of [...this.chats]) {
      let wrong: unknown = refused;
      if (this.chats.size > 1 && refused.status === 404) {
        const look = new AbortController();
        wrong = await this.wire
          .stream(`/v1/chats/subscribe?chat_id=${encodeURIComponent(chatId)}`, "", look.signal)
          .then((bytes) => bytes.cancel().then(() => null), (caught: unknown) => caught);
      }
      if (!(wrong instanceof Refused)) continue;
      this.chats.delete(chatId);
      this.seqs.delete(chatId);
      this.take({ kind: "gone", chatId, wrong });
    }
    return signal.aborted ? "" : "one of the chats is gone";
  }

  private forget(): void {
    this.lastEventId = "";
    this.seqs.clear();
    this.streamIds.clear();
  }
}
