/**
 * How long to wait for what, and before the next try. Pure: chance comes in as an argument.
 *
 * Full jitter: a pause is drawn from nothing up to a ceiling that doubles with each failure, so that clients which lost
 * their server together do not come back together. What the server asks for (`retry:`, `Retry-After`) is waited out
 * first. The numbers are those of the Python client (`threadcast/backoff.py`), each with its reason there.
 */

/** All in milliseconds. */
export interface Patience {
  connectMs: number;
  /** A heartbeat is overdue: 15 s of silence and a third of that for the way (PROTOCOL §4). It is only reported. */
  quietMs: number;
  /** Three heartbeats; a line that says nothing for longer is dead (PROTOCOL §4). */
  silenceMs: number;
  answerMs: number;
  pauseFirstMs: number;
  pauseMaxMs: number;
  claimRenewedMs: number;
}

export const PATIENCE: Readonly<Patience> = {
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
    private readonly patience: Patience,
    private readonly draw: () => number = Math.random,
  ) {
    this.ceiling = patience.pauseFirstMs;
  }

  /** Milliseconds to wait now, no less than what the server asked for. */
  pause(atLeastMs = 0): number {
    const drawn = this.draw() * this.ceiling;
    this.ceiling = Math.min(this.ceiling * 2, this.patience.pauseMaxMs);
    return Math.max(0, atLeastMs) + drawn;
  }

  reset(): void {
    this.ceiling = this.patience.pauseFirstMs;
  }
}
