/**
 * Posts what one chat's outbox holds, in order, until the server has each, and all of it again when asked to.
 *
 * It knows no stream: `chat.ts` says when a connection came (`repost`) and what has been seen (`settle`). The rules: one
 * command at a time, so that they arrive in the order in which they were sent; only what overtakes the server's queue
 * also overtakes one here that was asked to wait; whatever is refused for good is never posted again.
 */

import { Backoff } from "./backoff.js";
import { after, sleep } from "./clock.js";
import { Refused } from "./errors.js";
import { isExempt, WITHDRAWN, type Held, type Outbox } from "./outbox.js";
import type { Message, Receipt } from "./types.js";
import { Busy, pathOf, type Wire } from "./wire.js";

/** Whom the postman tells. */
export interface Recipient {
  /** The server keeps it, or has had it. */
  accepted(held: Held, receipt: Receipt): void;
  /** It has left the outbox. */
  refused(held: Held, wrong: Refused): void;
  /** The server had it long before; it has left the outbox. */
  longDone(held: Held): void;
  /** The server was asked to take it back. `isGone`: it has no effect and will have none. It has left the outbox. */
  withdrawn(held: Held, isGone: boolean): void;
  /** The server asked to wait, or was not reached. */
  delayed(wrong: Error): void;
}

/**
 * The server has had this command before, and no ack of it came in this time on a live stream: it was done so long ago
 * that no snapshot shows it any more (64 acks).
 */
const DUPLICATE_MS = 30_000;

export class Postman {
  private readonly posted = new Set<string>();
  /** Commands of this program that were never posted, so the server cannot have them. It may have those of an earlier page. */
  private readonly untried = new Set<string>();
  private readonly duplicates = new Map<string, () => void>();
  private readonly backoff: Backoff;
  private generation = 0;
  /** Set while a quota is waited out: cancels the wait. The end of the wait clears it, so that no clock is read twice. */
  private endSlow: (() => void) | null = null;
  private isPosting = false;
  private isClosed = false;
  private pause = new AbortController();

  constructor(
    private readonly wire: Wire,
    private readonly chatId: string,
    private readonly outbox: Outbox,
    private readonly recipient: Recipient,
  ) {
    this.backoff = new Backoff(wire.patience);
  }

  /** All that is held was posted on this connection. */
  get isDone(): boolean {
    return this.outbox.held(this.chatId).every((held) => this.posted.has(held.requestId));
  }

  /** Keep it and post it. Throws OutboxFull. */
  put(held: Held): void {
    this.outbox.add(held);
    this.untried.add(held.requestId);
    this.wake();
  }

  /** Stops posting the command. Returns false if the server may have it; the server is then asked to take it back. */
  withdraw(held: Held): boolean {
    const isUntried = this.untried.has(held.requestId);
    this.settle(held.requestId);
    if (!isUntried) {
      this.outbox.add({ ...held, type: WITHDRAWN });
      this.wake();
    }
    return isUntried;
  }

  /** A new connection: the server behind it may have lost what an older one took (PROTOCOL §15). */
  repost(): void {
    this.generation++;
    this.posted.clear();
    for (const cancel of this.duplicates.values()) cancel();
    this.duplicates.clear();
    this.backoff.reset();
    this.wake();
  }

  /** It was seen, or is not wanted any more. */
  settle(requestId: string): void {
    this.outbox.remove(this.chatId, requestId);
    this.posted.delete(requestId);
    this.untried.delete(requestId);
    this.duplicates.get(requestId)?.();
    this.duplicates.delete(requestId);
  }

  close(): void {
    this.isClosed = true;
    this.pause.abort();
    this.endSlow?.();
    for (const cancel of this.duplicates.values()) cancel();
  }

  private wake(): void {
    this.pause.abort();
    if (!this.isPosting) void this.run();
  }

  private async run(): Promise<void> {
    this.isPosting = true;
    // A turn of the event loop later, so that whoever sent has its handle before anything comes of it.
    await Promise.resolve();
    for (let held = this.next(); held && !this.isClosed; held = this.next()) await this.post(held);
    this.isPosting = false;
  }

  private next(): Held | undefined {
    const waiting = this.outbox.held(this.chatId).filter((held) => !this.posted.has(held.requestId));
    return waiting.find((held) => isExempt(held) || !this.endSlow);
  }

  private async post(held: Held): Promise<void> {
    const { generation } = this;
    let wait = 0;
    this.untried.delete(held.requestId);
    try {
      if (held.type === WITHDRAWN) return await this.takeBack(held);
      const receipt = await this.wire.ask<Receipt>("POST", pathOf("chats", this.chatId, "commands"), held.body);
      this.backoff.reset();
      const isHeld = this.outbox.held(this.chatId).includes(held);
      // Else it was seen or withdrawn before this answer came, or accepted before the connection that asked for it again.
      if (generation === this.generation && isHeld) {
        this.posted.add(held.requestId);
        if (receipt.status === "duplicate") this.watchDuplicate(held);
      }
      this.recipient.accepted(held, receipt);
    } catch (wrong) {
      if (wrong instanceof Refused && wrong.status !== 401) {
        if (!this.outbox.held(this.chatId).includes(held)) return; // withdrawn meanwhile: what takes it back finds nothing
        this.settle(held.requestId);
        return this.recipient.refused(held, wrong);
      }
      // A refused token is the caller's to mend; the command is good, and waits.
      const asked = wrong instanceof Busy ? wrong.retryMs : wrong instanceof Refused ? this.wire.patience.pauseMaxMs : 0;
      wait = this.backoff.pause(asked);
      this.recipient.delayed(wrong instanceof Error ? wrong : new Error(String(wrong)));
    }
    if (!wait) return;
    if (wait > this.wire.patience.pauseMaxMs && !isExempt(held)) {
      // A quota: what overtakes the queue goes on meanwhile.
      this.endSlow = after(wait, () => {
        this.endSlow = null;
        this.wake();
      });
      return;
    }
    this.pause = new AbortController();
    if (generation === this.generation) await sleep(wait, this.pause.signal);
  }

  /** Throws Refused, Busy, Unreachable. */
  private async takeBack(held: Held): Promise<void> {
    const { requestId } = held;
    const waited = await this.wire.ask<{ status?: string }>("DELETE", pathOf("chats", this.chatId, "queue", requestId)).catch(unlessThere);
    if (waited?.status === "accepted") throw new Busy("the server does not know yet whether it could be taken back", 0);
    // A command that does not wait has taken effect, or never arrived. The stream may lag behind that answer; a snapshot does not.
    const tree = waited ?? (await this.wire.ask<{ messages: Message[] }>("GET", `${pathOf("chats", this.chatId)}?view=tree`).catch(unlessThere));
    const isSent = tree !== null && "messages" in tree && tree.messages.some(({ client_request_id }) => client_request_id === requestId);
    this.backoff.reset();
    this.settle(requestId);
    this.recipient.withdrawn(held, !isSent);
  }

  private watchDuplicate(held: Held): void {
    const cancel = after(DUPLICATE_MS, () => {
      this.settle(held.requestId);
      this.recipient.longDone(held);
    });
    this.duplicates.set(held.requestId, cancel);
  }
}

/** Returns null if the resource does not exist. Throws other errors. */
function unlessThere(wrong: unknown): null {
  if (wrong instanceof Refused && wrong.status === 404) return null;
  throw wrong;
}
