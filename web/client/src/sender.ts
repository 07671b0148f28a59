/**
 * Posts the commands of one chat's outbox in order until the server has accepted each command, and posts all commands
 * again after a reconnect. `chat.ts` reports a new connection (`repost`) and the commands that the stream has shown
 * (`settle`). Commands are posted one at a time, so that they arrive in the order of sending. Only commands that
 * overtake the server's queue also overtake a command that the server asked to post later. A refused command is never
 * posted again.
 */

import { Backoff } from "./backoff.js";
import { after, sleep } from "./clock.js";
import { Refused } from "./errors.js";
import { isExempt, WITHDRAWN, type Held, type Outbox } from "./outbox.js";
import type { Message, Receipt } from "./types.js";
import { Busy, pathOf, type Wire } from "./wire.js";

/** Receives the sender's reports. */
export interface Recipient {
  /** The server has stored the command, now or earlier. */
  accepted(held: Held, receipt: Receipt): void;
  /** The server has refused the command, which was removed from the outbox. */
  refused(held: Held, wrong: Refused): void;
  /** The server accepted the command long ago, so no ack will arrive. The command was removed from the outbox. */
  longDone(held: Held): void;
  /**
   * The server has answered a withdrawal. With `isGone` the command will never have an effect. The command was removed
   * from the outbox.
   */
  withdrawn(held: Held, isGone: boolean): void;
  /** The server asked the client to wait, or was not reached. */
  delayed(wrong: Error): void;
}

/**
 * The longest wait, on a live stream, for the ack of a command that the server reports as a duplicate. After that time
 * the client concludes that the command took effect so long ago that its ack is not among the 64 of a snapshot.
 */
const DUPLICATE_MS = 30_000;

export class OutboxSender {
  private readonly posted = new Set<string>();
  /**
   * The commands of this program that were never posted, so that the server cannot have them. Commands of an earlier
   * page are not among them.
   */
  private readonly untried = new Set<string>();
  private readonly duplicates = new Map<string, () => void>();
  private readonly backoff: Backoff;
  private generation = 0;
  /** Cancels the wait for a quota; null while the sender waits for no quota. */
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
    this.backoff = new Backoff(wire.retryPolicy);
  }

  /** Whether all kept commands were posted on the present connection. */
  get isDone(): boolean {
    return this.outbox.held(this.chatId).every((held) => this.posted.has(held.requestId));
  }

  /** Keeps a command and posts it. Throws OutboxFull. */
  put(held: Held): void {
    this.outbox.add(held);
    this.untried.add(held.requestId);
    this.wake();
  }

  /**
   * Stops posting the command. Returns false if the server may have the command; the sender then asks the server to
   * take it back.
   */
  withdraw(held: Held): boolean {
    const isUntried = this.untried.has(held.requestId);
    this.settle(held.requestId);
    if (!isUntried) {
      this.outbox.add({ ...held, type: WITHDRAWN });
      this.wake();
    }
    return isUntried;
  }

  /**
   * Posts all kept commands again after a reconnect: the new server may have lost commands that an older one accepted
   * (PROTOCOL §15).
   */
  repost(): void {
    this.generation++;
    this.posted.clear();
    for (const cancel of this.duplicates.values()) cancel();
    this.duplicates.clear();
    this.backoff.reset();
    this.wake();
  }

  /** Removes a command that the stream has shown, or that is no longer wanted. */
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
    // Posts after the current call, so that the caller of `send` has its handle before any result arrives.
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
      const receipt = await this.wire.ask<Receipt>("POST", pathOf("chats", this.chatId, "commands"), held.body, await this.wire.lent());
      this.backoff.reset();
      const isHeld = this.outbox.held(this.chatId).includes(held);
      // Otherwise the stream showed the command before this answer, or it was withdrawn, or a newer connection posts it
      // again.
      if (generation === this.generation && isHeld) {
        this.posted.add(held.requestId);
        if (receipt.status === "duplicate") this.watchDuplicate(held);
      }
      this.recipient.accepted(held, receipt);
    } catch (wrong) {
      if (wrong instanceof Refused && wrong.status !== 401) {
        if (!this.outbox.held(this.chatId).includes(held)) return; // withdrawn meanwhile, and never stored by the server
        this.settle(held.requestId);
        return this.recipient.refused(held, wrong);
      }
      // After a 401 the caller must sign in; the command is kept.
      const asked = wrong instanceof Busy ? wrong.retryMs : wrong instanceof Refused ? this.wire.retryPolicy.pauseMaxMs : 0;
      wait = this.backoff.pause(asked);
      this.recipient.delayed(wrong instanceof Error ? wrong : new Error(String(wrong)));
    }
    if (!wait) return;
    if (wait > this.wire.retryPolicy.pauseMaxMs && !isExempt(held)) {
      // A quota delays only commands that wait in the server's queue.
      this.endSlow = after(wait, () => {
        this.endSlow = null;
        this.wake();
      });
      return;
    }
    this.pause = new AbortController();
    if (generation === this.generation) await sleep(wait, this.pause.signal);
  }

  /** Asks the server to take a command back. Throws Refused, Busy and Unreachable. */
  private async takeBack(held: Held): Promise<void> {
    const { requestId } = held;
    const waited = await this.wire.ask<{ status?: string }>("DELETE", pathOf("chats", this.chatId, "queue", requestId)).catch(unlessThere);
    if (waited?.status === "accepted") throw new Busy("the server does not know yet whether it could be taken back", 0);
    // A command that is not in the server's queue has taken effect, or never arrived. The stream may lag behind that
    // answer; a snapshot does not.
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
