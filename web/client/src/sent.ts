/** The outcome of a sent command, as promises that its sender may wait for. */

import type { ThreadcastError } from "./errors.js";
import type { Ack } from "./types.js";

/** The outcome of one command. */
export interface Sent {
  readonly requestId: string;
  /** Resolves when the server has stored the command (202). Rejects with Refused. */
  readonly accepted: Promise<void>;
  /**
   * Resolves when the stream shows the outcome. Rejects with Refused, also for a command that was refused after it
   * waited in the queue.
   */
  readonly acked: Promise<Ack>;
}

export class Handle implements Sent {
  readonly accepted: Promise<void>;
  readonly acked: Promise<Ack>;
  takeAccepted!: () => void;
  takeAck!: (ack: Ack) => void;
  takeRefusal!: (wrong: ThreadcastError) => void;

  constructor(readonly requestId: string) {
    const refusals: ((wrong: ThreadcastError) => void)[] = [];
    this.accepted = new Promise((done, fail) => {
      this.takeAccepted = done;
      refusals.push(fail);
    });
    this.acked = new Promise((done, fail) => {
      this.takeAck = (ack) => {
        this.takeAccepted();
        done(ack);
      };
      refusals.push(fail);
    });
    this.takeRefusal = (wrong) => refusals.forEach((refuse) => refuse(wrong));
    // Prevents unhandled rejections if no caller waits; a caller that waits still gets the rejection.
    this.accepted.catch(() => {});
    this.acked.catch(() => {});
  }
}
