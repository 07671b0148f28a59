/**
 * One endless stream of several chats over as many connections as it takes: resumes where it stopped, notices a missing
 * event and a silent line, and comes back when it should.
 *
 * It folds nothing. `take` is told of each arrival, in order, by a plain call. The one rule: after a loss that cannot be
 * mended the next event of a chat is a snapshot, and nothing comes twice (PROTOCOL §4).
 */

import { Backoff } from "./backoff.js";
import { after, now, sleep } from "./clock.js";
import { isSignedOut, Refused, Unreachable } from "./errors.js";
import { FrameParser, FrameTooLarge } from "./frames.js";
import { newId } from "./ids.js";
import { Places } from "./places.js";
import type { TransientEvent, WireEvent } from "./types.js";
import { Busy, pathOf, type Wire } from "./wire.js";

/** An event of a chat, or a transient frame, which has no `seq` (presence, typing, `chat_removed`). */
export type Arrived = { [key: string]: unknown; chat_id: string; type: string; seq?: string };

export type Item =
  /** A connection stands; what was missed is on its way. `isResumed`: it was asked to go on where the last one ended. */
  | { kind: "opened"; isResumed: boolean }
  /** The connection went, or was not to be had, and when the next one is tried. */
  | { kind: "lost"; reason: string; retryMs: number; isSignedOut?: boolean }
  /** A heartbeat is overdue: nothing has come for `forMs`. */
  | { kind: "quiet"; forMs: number }
  /** Bytes arrive again. */
  | { kind: "heard" }
  /** This chat has no connection for now, since others were viewed more recently. */
  | { kind: "resting" }
  /** A heartbeat: the line is alive, and all that was there has been sent. */
  | { kind: "beat" }
  /** `position` is 0 where the id does not tell it. */
  | { kind: "event"; chatId: string; event: WireEvent; position: number; id: string }
  /** An event of this chat is missing: `got` came where `expected` was due, so a snapshot is asked for. */
  | { kind: "missed"; chatId: string; expected: number; got: number }
  | { kind: "transient"; chatId: string; event: TransientEvent }
  /** This chat is refused; the others go on. */
  | { kind: "gone"; chatId: string; wrong: Refused };

class Missed extends Error {}

/** The wait before a server that does not know the caller is asked again; a sign-in ends the wait. */
const SIGN_IN_MS = 30_000;

export class Stream {
  private readonly name = newId();
  private readonly chats = new Set<string>();
  private readonly seqs = new Map<string, number>();
  private readonly places = new Places();
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
    this.backoff = new Backoff(wire.patience);
  }

  /** Watch one more chat. It begins with a snapshot, or with `gone`. */
  add(chatId: string): void {
    if (this.chats.has(chatId)) return;
    this.chats.add(chatId);
    this.added.add(chatId);
    if (!this.isRunning) void this.run();
    else void this.change();
  }

  /** Watch it no longer. Without any chat there is no connection, and nothing to go on after. */
  remove(chatId: string): void {
    if (!this.chats.delete(chatId)) return;
    this.seqs.delete(chatId);
    this.removed.add(chatId);
    if (this.chats.size === 0) this.resync();
    else void this.change();
  }

  /** Tell the other streams of this chat; a word that is lost matters to nobody. */
  type(chatId: string, isTyping: boolean): void {
    const body = JSON.stringify({ typing: isTyping, stream_id: this.name });
    this.wire.ask("POST", pathOf("chats", chatId, "typing"), body).catch(() => {});
  }

  /** Begin this chat again with a snapshot, since what came cannot be gone on with. */
  resync(): void {
    this.forget();
    this.connection.abort();
  }

  /**
   * Give up the present connection, or the pause before the next, which resumes. One that is being made is let be, so
   * that nine tabs which ask for it at once cause one. */
  cut(): void {
    if (this.isOpen || this.isPausing) this.connection.abort();
  }

  /** Lose the next event, as a broken relay might, so that people can watch a gap being noticed. */
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
      let isOut = false;
      try {
        reason = await this.connect(signal);
      } catch (wrong) {
        if (!(wrong instanceof Refused)) throw wrong;
        isOut = this.wire.awaitsSignIn && isSignedOut(wrong);
        if (isOut) this.retryMs = SIGN_IN_MS;
        reason = isOut ? wrong.message : await this.findTheGone(wrong, signal);
      }
      this.isOpen = false;
      if (!this.chats.size || this.isClosed) break;
      const pause = signal.aborted && !reason ? 0 : this.backoff.pause(this.retryMs);
      this.take({ kind: "lost", reason: reason || "connecting again", retryMs: pause, ...(isOut && { isSignedOut: true }) });
      this.connection = new AbortController();
      this.isPausing = true;
      await sleep(pause, this.connection.signal);
      this.isPausing = false;
    }
    this.isRunning = false;
    this.forget();
  }

  /** One connection, to its end; why it ended, "" when we wanted it. Throws Refused. */
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
      reason = await this.read(bytes.getReader(), signal);
    } catch (wrong) {
      if (wrong instanceof Busy) this.retryMs = wrong.retryMs;
      else if (wrong instanceof Missed || wrong instanceof FrameTooLarge) this.forget();
      else if (!(wrong instanceof Unreachable)) throw wrong;
      if (!signal.aborted) reason = wrong.message;
    }
    // A server that takes connections and drops them at once is not met by a herd of ours.
    if (now() - openedAt > this.wire.patience.pauseMaxMs) this.backoff.reset();
    return reason;
  }

  private async read(reader: ReadableStreamDefaultReader<Uint8Array>, signal: AbortSignal): Promise<string> {
    const parser = new FrameParser();
    const { quietMs, silenceMs } = this.wire.patience;
    let cancel = () => {};
    let isQuiet = false;
    let heardAt = now();
    let reason = "the server ended the stream";
    const stop = () => void reader.cancel().catch(() => {});
    const giveUp = () => {
      reason = "the line fell silent";
      stop();
    };
    const tell = () => {
      isQuiet = true;
      this.take({ kind: "quiet", forMs: quietMs });
      cancel = after(Math.max(0, heardAt + silenceMs - now()), giveUp); // also where a laptop slept meanwhile
    };
    signal.addEventListener("abort", stop, { once: true });
    try {
      for (;;) {
        cancel();
        heardAt = now();
        cancel = quietMs < silenceMs ? after(quietMs, tell) : after(silenceMs, giveUp);
        const { done, value } = await reader.read();
        // A `retry` that nothing follows is the goodbye of a server that goes down (PROTOCOL §4).
        if (done) return signal.aborted ? "" : this.retryMs ? "the server is shutting down" : reason;
        if (isQuiet) this.take({ kind: "heard" });
        isQuiet = false;
        for (const frame of parser.feed(value)) {
          this.retryMs = frame.kind === "retry" ? frame.milliseconds : 0;
          if (frame.kind === "comment") this.take({ kind: "beat" });
          else if (frame.kind === "event") this.arrived(frame.data, frame.id);
        }
      }
    } catch (wrong) {
      if (wrong instanceof Missed || wrong instanceof FrameTooLarge) throw wrong;
      return signal.aborted ? "" : "the connection broke";
    } finally {
      cancel();
      signal.removeEventListener("abort", stop);
      stop();
    }
  }

  private arrived(data: string, id: string): void {
    let event: Arrived;
    try {
      event = JSON.parse(data) as Arrived;
    } catch {
      return; // nothing of ours
    }
    const { chat_id: chatId, seq } = event;
    if (!this.chats.has(chatId)) return; // told to leave, and on its way still
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
    const position = this.places.positionOf(id);
    this.take({ kind: "event", chatId, event: event as unknown as WireEvent, position, id });
  }

  private transient(chatId: string, event: Arrived): void {
    if (event.type !== "chat_removed") return this.take({ kind: "transient", chatId, event: event as unknown as TransientEvent });
    this.seqs.delete(chatId);
    if (event.reason === "removed") return;
    if (event.reason === "unavailable") {
      // The connection goes on; this chat is asked for again a little later.
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
   * Sends the running stream, in one request, the chats added and removed since the last one: a removed chat makes room for
   * an added one. If the request fails, a new connection carries the chats that are wanted now.
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

  /** One of several chats is not there, and the server does not say which (PROTOCOL §4): ask for each. */
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
    this.places.clear();
  }
}
