/**
 * Computes the pauses between attempts, and holds the time limits of requests. The module is pure: the random generator
 * is an argument.
 *
 * Full jitter: a pause is a random time between zero and a ceiling that doubles with each failure, so that clients
 * which lost their server together do not reconnect together. The pause is added to the time that the server asks for
 * (`retry:`, `Retry-After`). The Python client has the same numbers, for the same reasons
 * (`client/threadcast_client/backoff.py`).
 */

/** All in milliseconds. */
export interface RetryPolicy {
  connectMs: number;
  /**
   * After this silence a heartbeat is overdue: 15 s (PROTOCOL §4) plus a third of 15 s for delays on the network. The
   * overdue heartbeat is reported and has no other effect.
   */
  quietMs: number;
  /** After this silence the connection counts as dead: three heartbeats (PROTOCOL §4). */
  silenceMs: number;
  answerMs: number;
  pauseFirstMs: number;
  pauseMaxMs: number;
  claimRenewedMs: number;
}

export const RETRY_POLICY: Readonly<RetryPolicy> = {
  connectMs: 5_000,
  quietMs: 20_000,
  silenceMs: 45_000,
  answerMs: 10_000,
  pauseFirstMs: 250,
  pauseMaxMs: 5_000,
  claimRenewedMs: 20_000,
};

export class Backoff {
  private ceiling: number;

  constructor(
    private readonly retryPolicy: RetryPolicy,
    private readonly draw: () => number = Math.random,
  ) {
    this.ceiling = retryPolicy.pauseFirstMs;
  }

  /** Returns the milliseconds to wait now, at least as many as the server asked for. */
  pause(atLeastMs = 0): number {
    const drawn = this.draw() * this.ceiling;
    this.ceiling = Math.min(this.ceiling * 2, this.retryPolicy.pauseMaxMs);
    return Math.max(0, atLeastMs) + drawn;
  }

  reset(): void {
    this.ceiling = this.retryPolicy.pauseFirstMs;
  }
}
