/**
 * Keeps one chat up to date, and sends commands to it. A `Source` delivers the events; the chat folds them with the
 * same reducer as every other client, so `state` equals the server's state. A sent command is kept until the stream
 * shows it (in an `ack`, or in the acks, messages or queue of a snapshot) or the server refuses it.
 */

import { Closed, isSignedOut, Refused, ThreadcastError, Unreachable } from "./errors.js";
import { after, now } from "./clock.js";
import type { Connection, Happening } from "./connection.js";
import { newId } from "./ids.js";
import { WITHDRAWN, type Held, type Outbox } from "./outbox.js";
import { OutboxSender, type Recipient } from "./sender.js";
import { reduce } from "./reducer.js";
import { Handle, type Sent } from "./sent.js";
import type { Source } from "./source.js";
import { activePath, emptyState, isAtRest, stateFromSnapshot, type ChatState } from "./state.js";
import type { Item } from "./stream.js";
import { ToolCalls, type Handler } from "./tool_calls.js";
import type { Ack, Command, JsonObject, Message, PauseReason, Questions, Receipt, Snapshot, TransientEvent, UserMessage, WireEvent } from "./types.js";
import { pathOf, type Wire } from "./wire.js";

/** A command whose `client_request_id` may be left out, because the client creates one. */
export type Draftless<C> = C extends Command ? Omit<C, "client_request_id"> & { client_request_id?: string } : never;
export type Sendable = Draftless<Command>;

/** Everything that a listener of `onEvent` may receive. */
export type ChatEvent = WireEvent | TransientEvent;

export class Chat implements Recipient {
  state: ChatState;
  connection: Connection = { state: "offline", held: 0 };
  /** The reason why the stream has ended permanently; null while it continues. */
  failure: ThreadcastError | null = null;
  /** Whether a snapshot has arrived; until then `state` is an empty chat. */
  isReady = false;

  private readonly sender: OutboxSender;
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
    this.sender = new OutboxSender(wire, id, outbox, this);
    this.toolCalls = new ToolCalls(this, claimer, wire.retryPolicy);
    this.connection = { state: "offline", held: this.held };
    this.unwatch = source.watch(id, (item) => this.take(item));
  }

  // Reading.

  /** The active path, root first, including the unfinished answer. */
  get messages(): Message[] {
    return activePath(this.state);
  }

  /** The commands that were sent and that the stream has not shown yet, in the order of sending. */
  get waiting(): Held[] {
    return this.outbox.held(this.id);
  }

  get isAtRest(): boolean {
    return isAtRest(this.state);
  }

  /** Calls `listener` after each change of `state`, `connection` or `failure`; the returned function ends the calls. */
  subscribe(listener: () => void): () => void {
    this.changed.add(listener);
    return () => this.changed.delete(listener);
  }

  /** Calls `listener` with every event as it arrived, including snapshots and transient frames. */
  onEvent(listener: (event: ChatEvent, position: number, id: string) => void): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  /** Calls `watcher` with each event of the connection. The present state is in `connection`. */
  onConnection(watcher: (happening: Happening) => void): () => void {
    this.watchers.add(watcher);
    return () => this.watchers.delete(watcher);
  }

  /**
   * Calls `listener` with every command of this client that is refused, at once or after it waited in the queue. In the
   * second case `acked` was resolved when the command was queued (PROTOCOL §3).
   */
  onRefused(listener: (requestId: string, wrong: Refused) => void): () => void {
    this.refusals.add(listener);
    return () => this.refusals.delete(listener);
  }

  /**
   * Waits for a state for which `isSo` returns true. Throws Unreachable after `ms` milliseconds, and the chat's
   * `failure` if the stream ends.
   */
  until(isSo: (state: ChatState) => boolean, ms = this.wire.retryPolicy.answerMs): Promise<ChatState> {
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

  /**
   * Marks this chat as viewed now. The call has an effect only where tabs share a connection, which carries 64 chats.
   */
  look(): void {
    this.source.look(this.id);
  }

  // Sending. Only `readQuestions`, `cancel` and `withdraw` wait for the server.

  /** Sends a text, or any command of PROTOCOL §2. Throws OutboxFull, or the chat's `failure`. */
  send(what: string | Sendable, more: Partial<Omit<UserMessage, "type" | "content">> = {}): Sent {
    if (this.failure) throw this.failure;
    const command = typeof what === "string" ? { type: "user_message", content: what, ...more } : what;
    const requestId = command.client_request_id ?? newId();
    const body = JSON.stringify({ ...command, client_request_id: requestId });
    this.sender.put({ chatId: this.id, requestId, type: command.type, body });
    const handle = new Handle(requestId);
    this.sent.set(requestId, handle);
    if (this.connection.isResting) this.look();
    this.say();
    return handle;
  }

  /**
   * Fetches the open questions with all arguments, also those that the stream hides (`hides_input`). Throws Refused (code
   * `forbidden` for a caller who may not approve) and Unreachable.
   */
  async readQuestions(): Promise<readonly PauseReason[]> {
    return (await this.wire.ask<Questions>("GET", pathOf("chats", this.id, "questions"))).questions;
  }

  /**
   * Accepts or refuses a paused call. The decision is bound to the arguments that this client was shown (PROTOCOL §11).
   */
  decide(
    toolCallId: string,
    accepted: boolean,
    more: { remember?: "call" | "tool" | "server"; edited_input?: JsonObject; note?: string } = {},
  ): Sent {
    const asked = this.state.runtime.pause_reasons.find((reason) => reason.tool_call_id === toolCallId);
    const input_hash = asked?.input_hash || null;
    return this.send({ type: "tool_decision", tool_call_id: toolCallId, accepted, input_hash, ...more });
  }

  /** Accepts or refuses a preview. The decision is bound to the data that this client was shown (PROTOCOL §11). */
  decidePreview(payloadId: string, accepted: boolean, note?: string): Sent {
    const input_hash = this.state.payloads.find((payload) => payload.payload_id === payloadId)?.input_hash;
    return this.send({ type: "tool_decision", payload_id: payloadId, accepted, input_hash, note });
  }

  /**
   * Removes a command from the server's queue. Returns false if the command is no longer in the queue. Throws Refused
   * and Unreachable.
   */
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
   * Takes back a sent command that the stream has not shown. Returns "gone" if the command will have no effect, "sent"
   * if it has taken effect already. A command that was never posted is withdrawn at once. Otherwise the server is asked
   * as soon as it can be reached, and until then the command is not posted again, even after a reload. Throws the
   * chat's `failure`.
   */
  withdraw(requestId: string): Promise<"gone" | "sent"> {
    const held = this.waiting.find((one) => one.requestId === requestId);
    if (!held) return Promise.resolve("sent");
    this.sent.delete(requestId);
    const isGone = held.type !== WITHDRAWN && this.sender.withdraw(held);
    this.say();
    if (isGone) return Promise.resolve("gone");
    return new Promise((done, fail) => this.withdrawals.set(requestId, { done, fail }));
  }

  /**
   * Tells other clients that a person is typing here, or has stopped. Other clients discard the report after a while,
   * so repeat the call while the person types.
   */
  type(isTyping: boolean): void {
    this.source.type(this.id, isTyping);
  }

  /**
   * Sets the handler for the calls of a client tool. The client claims each call first, so that only one client carries
   * it out (PROTOCOL §12).
   */
  onToolCall(name: string, handler: Handler): void {
    this.toolCalls.add(name, handler);
  }

  /** Stops watching the chat. Kept commands stay in the outbox. */
  close(): void {
    this.unwatch();
    this.fail(new Closed(`chat ${this.id}`));
  }

  // Reports from the source and from the sender.

  private take(item: Item): void {
    switch (item.kind) {
      case "opened":
        this.isTold = false;
        this.happen({ kind: "opened", after: item.isResumed && this.isReady ? this.state.position : null });
        this.connect({ state: "catching_up" });
        return this.sender.repost();
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
        return this.sender.repost(); // sent commands do not need the stream
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
      // The chat does not exist, so no run is aborted and no stream will show an ack (PROTOCOL §1).
      this.settle({ type: "ack", client_request_id: held.requestId, accepted: true, result: { aborted: true } });
    }
    const { state, silentSince } = this.connection;
    // The server answers requests, so the silent connection is dead.
    if (silentSince !== undefined) this.source.cut();
    else if (state === "live" && this.sender.isDone) this.connect({ state: "live" });
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
    if (this.waiting.some((held) => held.requestId === ack.client_request_id && held.type === WITHDRAWN)) {
      return; // the answer to the withdrawal will settle the command
    }
    this.sender.settle(ack.client_request_id);
    if (!ack.accepted) {
      const { error, code } = ack.result;
      return this.refuse(ack.client_request_id, new Refused(String(error ?? "refused"), String(code ?? "")));
    }
    this.sent.get(ack.client_request_id)?.takeAck(ack);
    if (!ack.result.queued) this.sent.delete(ack.client_request_id); // otherwise a refusal may follow
  }

  private refuse(requestId: string, wrong: Refused): void {
    const handle = this.sent.get(requestId);
    if (!handle) return; // another client's
    this.sent.delete(requestId);
    handle.takeRefusal(wrong);
    for (const listener of [...this.refusals]) listener(requestId, wrong);
  }

  /** Settles the commands that a snapshot shows, because a snapshot may replace their acks (PROTOCOL §5). */
  private settleShown(snapshot: Snapshot): void {
    const last = new Map((snapshot.recent_acks ?? []).map((ack) => [ack.client_request_id, ack]));
    const shown = [...snapshot.messages, ...snapshot.runtime.queued_items].map((each) => each.client_request_id);
    for (const id of shown) {
      if (id && !last.has(id)) last.set(id, { type: "ack", client_request_id: id, accepted: true, result: { queued: true } });
    }
    const own = [...this.waiting.map((held) => held.requestId), ...this.sent.keys()];
    for (const id of new Set(own)) {
      const ack = last.get(id);
      if (ack) this.settle(ack);
    }
  }

  // The connection.

  private get held(): number {
    return this.waiting.filter((held) => held.type !== WITHDRAWN).length;
  }

  /**
   * Sets the state to live once the new connection has delivered the missed events and all kept commands are posted
   * again.
   */
  private catchUp(): void {
    if (this.connection.state !== "catching_up" || !this.isTold || !this.sender.isDone) return;
    this.happen({ kind: "live" });
    this.connect({ state: "live" });
  }

  /** Reports a change of the state or of the number of kept commands. */
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
    this.sender.close();
    this.toolCalls.close();
    for (const handle of this.sent.values()) handle.takeRefusal(wrong);
    for (const { fail } of this.withdrawals.values()) fail(wrong);
    this.connect({ state: "offline", reason: wrong.message });
  }
}
