/**
 * One live chat: its folded state, and the commands that go to it.
 *
 * A `Source` feeds it; it folds with the one reducer, so `state` is what the server and every other client have. The one
 * rule: what was sent is held until the stream shows it (`ack`, a snapshot's acks, messages or queue) or it is refused.
 */

import { Closed, isSignedOut, Refused, ThreadcastError, Unreachable } from "./errors.js";
import { after, now } from "./clock.js";
import { newId } from "./ids.js";
import { WITHDRAWN, type Held, type Outbox } from "./outbox.js";
import { Postman, type Recipient } from "./postman.js";
import { reduce } from "./reducer.js";
import { Handle, type Sent } from "./sent.js";
import type { Source } from "./source.js";
import { activePath, emptyState, isAtRest, stateFromSnapshot, type ChatState } from "./state.js";
import type { Item } from "./stream.js";
import { ToolCalls, type Handler } from "./tool_calls.js";
import type { Ack, Command, JsonObject, Message, Receipt, Snapshot, TransientEvent, UserMessage, WireEvent } from "./types.js";
import { pathOf, type Wire } from "./wire.js";

/** How we stand to the server. `held`: commands sent and not yet shown by the stream. */
export interface Connection {
  readonly state: "offline" | "catching_up" | "live";
  readonly held: number;
  readonly reason?: string;
  /** When the next try is, in milliseconds on the clock of `performance.now()`, which nobody sets. */
  readonly retryAt?: number;
  /** When the server last sent a byte, on the same clock; set only while a heartbeat is overdue (PROTOCOL §4). */
  readonly silentSince?: number;
  /** The server does not know the caller: after a sign-in call `Client.retry()`. */
  readonly isSignedOut?: boolean;
  /** More chats are open than one connection carries, and this chat is not among the most recently viewed. */
  readonly isResting?: boolean;
}

/** What happens to the connection, for whoever wants to watch it happen. */
export type Happening =
  /** `after`: the position after which the server was asked to go on; null where a snapshot begins anew. */
  | { kind: "opened"; after: number | null }
  | { kind: "lost"; reason: string; retryMs: number }
  /** An event is missing: number `got` came where `expected` was due. A snapshot follows. */
  | { kind: "missed"; expected: number; got: number }
  /** All that was missed has come, and all that was held is posted. */
  | { kind: "live" };

/** A command without the id that the client gives it. */
export type Draftless<C> = C extends Command ? Omit<C, "client_request_id"> & { client_request_id?: string } : never;
export type Sendable = Draftless<Command>;

/** All that a listener may be told of. */
export type ChatEvent = WireEvent | TransientEvent;

export class Chat implements Recipient {
  state: ChatState;
  connection: Connection = { state: "offline", held: 0 };
  /** Why the stream has ended for good; null while it goes on. */
  failure: ThreadcastError | null = null;
  /** Whether a snapshot has come; until then `state` is an empty chat. */
  isReady = false;

  private readonly postman: Postman;
  private readonly toolCalls: ToolCalls;
  private readonly changed = new Set<() => void>();
  private readonly listeners = new Set<(event: ChatEvent, position: number, id: string) => void>();
  private readonly watchers = new Set<(happening: Happening) => void>();
  private readonly refusals = new Set<(requestId: string, wrong: Refused) => void>();
  private readonly sent = new Map<string, Handle>();
  private readonly withdrawals = new Map<string, { done(outcome: "gone" | "sent"): void; fail(wrong: ThreadcastError): void }>();
  private readonly unwatch: () => void;
  private isTold = false;

  constructor(
    readonly id: string,
    private readonly wire: Wire,
    private readonly source: Source,
    private readonly outbox: Outbox,
    claimer: string,
  ) {
    this.state = emptyState(id);
    this.postman = new Postman(wire, id, outbox, this);
    this.toolCalls = new ToolCalls(this, claimer, wire.patience);
    this.connection = { state: "offline", held: this.held };
    this.unwatch = source.watch(id, (item) => this.take(item));
  }

  // Reading.

  /** The active path, root first, with the unfinished answer as it stands. */
  get messages(): Message[] {
    return activePath(this.state);
  }

  /** Commands sent and not yet shown by the stream, in their order. */
  get waiting(): Held[] {
    return this.outbox.held(this.id);
  }

  get isAtRest(): boolean {
    return isAtRest(this.state);
  }

  /** Be told whenever `state`, `connection` or `failure` is another. Returns how to stop. */
  subscribe(listener: () => void): () => void {
    this.changed.add(listener);
    return () => this.changed.delete(listener);
  }

  /** Be told of every event as it came, snapshots and transient frames included. */
  onEvent(listener: (event: ChatEvent, position: number, id: string) => void): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  /** Be told of what happens to the connection, each time. `connection` says how it stands. */
  onConnection(watcher: (happening: Happening) => void): () => void {
    this.watchers.add(watcher);
    return () => this.watchers.delete(watcher);
  }

  /**
   * Be told of every command of ours that is refused, be it at once or when its turn came: `acked` of a command that
   * waited in the queue was resolved long before (PROTOCOL §3).
   */
  onRefused(listener: (requestId: string, wrong: Refused) => void): () => void {
    this.refusals.add(listener);
    return () => this.refusals.delete(listener);
  }

  /** Wait for a state. Throws Unreachable after `ms`, and what ended the stream. */
  until(isSo: (state: ChatState) => boolean, ms = this.wire.patience.answerMs): Promise<ChatState> {
    return new Promise((done, fail) => {
      const look = () => {
        if (this.isReady && isSo(this.state)) end(() => done(this.state));
        else if (this.failure) end(() => fail(this.failure));
      };
      const end = (then: () => void) => {
        stop();
        cancel();
        then();
      };
      const stop = this.subscribe(look);
      const cancel = after(ms, () => end(() => fail(new Unreachable(`chat ${this.id} did not come to that`))));
      look();
    });
  }

  /** Marks this chat as viewed now. Useful only where tabs share a connection, which carries 64 chats. */
  look(): void {
    this.source.look(this.id);
  }

  // Sending. Each returns at once.

  /** Send a text, or any command of PROTOCOL §2. Throws OutboxFull, or what ended the stream. */
  send(what: string | Sendable, more: Partial<Omit<UserMessage, "type" | "content">> = {}): Sent {
    if (this.failure) throw this.failure;
    const command = typeof what === "string" ? { type: "user_message", content: what, ...more } : what;
    const requestId = command.client_request_id ?? newId();
    const body = JSON.stringify({ ...command, client_request_id: requestId });
    this.postman.put({ chatId: this.id, requestId, type: command.type, body });
    const handle = new Handle(requestId);
    this.sent.set(requestId, handle);
    if (this.connection.isResting) this.look();
    this.say();
    return handle;
  }

  /** Decide a paused call, bound to the arguments that this client was shown (PROTOCOL §11). */
  decide(
    toolCallId: string,
    accepted: boolean,
    more: { remember?: "call" | "tool" | "server"; edited_input?: JsonObject; note?: string } = {},
  ): Sent {
    const asked = this.state.runtime.pause_reasons.find((reason) => reason.tool_call_id === toolCallId);
    const input_hash = asked?.input_hash || null;
    return this.send({ type: "tool_decision", tool_call_id: toolCallId, accepted, input_hash, ...more });
  }

  /** Decide a preview, bound to the data that this client was shown (PROTOCOL §11). */
  decidePreview(payloadId: string, accepted: boolean, note?: string): Sent {
    const input_hash = this.state.payloads.find((payload) => payload.payload_id === payloadId)?.input_hash;
    return this.send({ type: "tool_decision", payload_id: payloadId, accepted, input_hash, note });
  }

  /** Take a waiting command back; false when it does not wait any more. Throws Refused, Unreachable. */
  async cancel(requestId: string): Promise<boolean> {
    try {
      await this.wire.ask("DELETE", pathOf("chats", this.id, "queue", requestId));
      return true;
    } catch (wrong) {
      if (wrong instanceof Refused && wrong.status === 404) return false;
      throw wrong;
    }
  }

  /**
   * Takes back a sent command that the stream has not shown. Returns "gone" if the command will have no effect, "sent" if
   * it has taken effect already. A command that was never posted is gone at once; else the server is asked as soon as it
   * can be reached, and the command is not posted again meanwhile, also after a reload. Throws what ended the stream.
   */
  withdraw(requestId: string): Promise<"gone" | "sent"> {
    const held = this.waiting.find((one) => one.requestId === requestId);
    if (!held) return Promise.resolve("sent");
    this.sent.delete(requestId);
    const isGone = held.type !== WITHDRAWN && this.postman.withdraw(held);
    this.say();
    if (isGone) return Promise.resolve("gone");
    return new Promise((done, fail) => this.withdrawals.set(requestId, { done, fail }));
  }

  /** Tell the others that somebody types here, or does no longer. They forget it after a while; say it again. */
  type(isTyping: boolean): void {
    this.source.type(this.id, isTyping);
  }

  /** Carry out the calls of a client tool, each behind a claim, so that only one client does it (PROTOCOL §12). */
  onToolCall(name: string, handler: Handler): void {
    this.toolCalls.add(name, handler);
  }

  /** Watch no longer. What is held stays in the outbox. */
  close(): void {
    this.unwatch();
    this.fail(new Closed(`chat ${this.id}`));
  }

  // What the source and the postman tell.

  private take(item: Item): void {
    switch (item.kind) {
      case "opened":
        this.isTold = false;
        this.happen({ kind: "opened", after: item.isResumed && this.isReady ? this.state.position : null });
        this.connect({ state: "catching_up" });
        return this.postman.repost();
      case "lost":
        this.happen({ kind: "lost", reason: item.reason, retryMs: item.retryMs });
        return this.connect({
          state: "offline",
          reason: item.reason,
          retryAt: now() + item.retryMs,
          ...(item.isSignedOut && { isSignedOut: true }),
        });
      case "quiet":
        return this.connect({ ...this.connection, silentSince: now() - item.forMs });
      case "heard": {
        const { silentSince: _, ...rest } = this.connection;
        return this.connect(rest);
      }
      case "resting":
        this.connect({ state: "offline", reason: "too many chats are open here", isResting: true });
        return this.postman.repost(); // sent commands do not need the stream
      case "missed":
        return this.happen({ kind: "missed", expected: item.expected, got: item.got });
      case "beat":
        this.isTold = this.isReady;
        return this.catchUp();
      case "gone":
        return this.fail(item.wrong);
      case "transient":
        return this.tell(item.event, this.state.position, "");
      case "event":
        this.fold(item.event, item.position);
        this.tell(item.event, this.state.position, item.id);
        this.toolCalls.look();
        return this.say();
    }
  }

  accepted(held: Held, receipt: Receipt): void {
    this.sent.get(held.requestId)?.takeAccepted();
    if (receipt.status === "aborted" && this.isReady && this.state.position === 0) {
      // There is no such chat, so there is nothing to abort and nobody who would say so (PROTOCOL §1).
      this.settle({ type: "ack", client_request_id: held.requestId, accepted: true, result: { aborted: true } });
    }
    const { state, silentSince } = this.connection;
    // The server answers requests, so the silent connection is dead.
    if (silentSince !== undefined) this.source.cut();
    else if (state === "live" && this.postman.isDone) this.connect({ state: "live" });
    this.say();
  }

  refused(held: Held, wrong: Refused): void {
    this.refuse(held.requestId, wrong);
    this.say();
  }

  longDone(held: Held): void {
    this.settle({ type: "ack", client_request_id: held.requestId, accepted: true, result: { duplicate: true } });
    this.say();
  }

  withdrawn({ requestId }: Held, isGone: boolean): void {
    this.withdrawals.get(requestId)?.done(isGone ? "gone" : "sent");
    this.withdrawals.delete(requestId);
    this.say();
  }

  delayed(wrong: Error): void {
    const { message: reason } = wrong;
    if (isSignedOut(wrong)) this.connect({ ...this.connection, reason, isSignedOut: true });
    else if (this.connection.state !== "offline") this.connect({ ...this.connection, reason });
  }

  // Folding.

  private fold(event: WireEvent, position: number): void {
    if (event.type !== "snapshot") {
      this.state = reduce(this.state, event);
      if (event.type === "ack") this.settle(event);
      return;
    }
    this.state = stateFromSnapshot(this.id, event, position);
    this.isReady = this.isTold = true;
    this.settleShown(event);
  }

  private settle(ack: Ack): void {
    if (this.outbox.held(this.id).some((held) => held.requestId === ack.client_request_id && held.type === WITHDRAWN)) {
      return; // the answer to its withdrawal decides
    }
    this.postman.settle(ack.client_request_id);
    if (!ack.accepted) {
      const { error, code } = ack.result;
      return this.refuse(ack.client_request_id, new Refused(String(error ?? "refused"), String(code ?? "")));
    }
    this.sent.get(ack.client_request_id)?.takeAck(ack);
    if (!ack.result.queued) this.sent.delete(ack.client_request_id); // else a final word may follow
  }

  private refuse(requestId: string, wrong: Refused): void {
    const handle = this.sent.get(requestId);
    if (!handle) return; // another client's
    this.sent.delete(requestId);
    handle.takeRefusal(wrong);
    for (const listener of [...this.refusals]) listener(requestId, wrong);
  }

  /** A snapshot may come in place of the ack (PROTOCOL §5). */
  private settleShown(snapshot: Snapshot): void {
    const last = new Map((snapshot.recent_acks ?? []).map((ack) => [ack.client_request_id, ack]));
    const shown = [...snapshot.messages, ...snapshot.runtime.queued_items].map((each) => each.client_request_id);
    for (const id of shown) {
      if (id && !last.has(id)) last.set(id, { type: "ack", client_request_id: id, accepted: true, result: { queued: true } });
    }
    const own = [...this.outbox.held(this.id).map((held) => held.requestId), ...this.sent.keys()];
    for (const id of new Set(own)) {
      const ack = last.get(id);
      if (ack) this.settle(ack);
    }
  }

  // The connection.

  private get held(): number {
    return this.outbox.held(this.id).length;
  }

  /** Live: after the first word of a connection, and once all that is held was posted again. */
  private catchUp(): void {
    if (this.connection.state !== "catching_up" || !this.isTold || !this.postman.isDone) return;
    this.happen({ kind: "live" });
    this.connect({ state: "live" });
  }

  /** Something has changed: the state, or the number of held commands. */
  private say(): void {
    this.connection = { ...this.connection, held: this.held };
    this.catchUp();
    for (const listener of [...this.changed]) listener();
  }

  private connect(connection: Omit<Connection, "held">): void {
    this.connection = { ...connection, held: this.held };
    for (const listener of [...this.changed]) listener();
  }

  private happen(happening: Happening): void {
    for (const watcher of [...this.watchers]) watcher(happening);
  }

  private tell(event: ChatEvent, position: number, id: string): void {
    for (const listener of [...this.listeners]) listener(event, position, id);
  }

  private fail(wrong: ThreadcastError): void {
    if (this.failure) return;
    this.failure = wrong;
    this.postman.close();
    this.toolCalls.close();
    for (const handle of this.sent.values()) handle.takeRefusal(wrong);
    for (const { fail } of this.withdrawals.values()) fail(wrong);
    this.connect({ state: "offline", reason: wrong.message });
  }
}
