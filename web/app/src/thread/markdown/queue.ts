/**
 * The order in which diagrams are drawn, one at a time. The module is pure, except for the work that it is given.
 *
 * Each diagram has a short first try, so that slow diagrams do not delay the others, and a long second try when no
 * first try waits. The newest diagram is tried first, because it is at the end of the chat, where most readers are.
 */

/** The longest duration of one try, in milliseconds. */
export interface Limits {
  readonly ms: number;
  /** The longest silence of a frame. A frame that works sends a message every second, also while it loads code. */
  readonly silentMs: number;
}

/** Most diagrams take some tenths of a second, so 3 s are enough even on a machine with ten times its usual load. */
export const FIRST_TRY: Limits = { ms: 10_000, silentMs: 3_000 };

/**
 * These limits suffice to draw the largest accepted diagram, and to load the code of its kind over a slow connection.
 */
export const SECOND_TRY: Limits = { ms: 30_000, silentMs: 8_000 };

/**
 * The maximum number of waiting diagrams, which is more than the visible messages contain. If more diagrams wait, the
 * oldest is refused.
 */
export const MAX_WAITING = 50;

/** A try exceeded its time limit. */
export class TooLate extends Error {}

/** A failure that may not happen again, unlike a wrong diagram or a diagram that takes too long. */
export class NotNow extends Error {}

interface Job<T> {
  readonly work: (limits: Limits) => Promise<T>;
  readonly resolve: (value: T) => void;
  readonly reject: (wrong: Error) => void;
}

export class Queue<T> {
  private readonly first: Job<T>[] = [];
  private readonly second: Job<T>[] = [];
  private isBusy = false;

  /**
   * Runs `work` when its turn comes, at most twice. `work` must reject with `TooLate` when it exceeds the limits that
   * it is given. Rejects with the error of `work`, or with `NotNow` if too many diagrams wait.
   */
  add(work: (limits: Limits) => Promise<T>): Promise<T> {
    return new Promise((resolve, reject) => {
      this.first.push({ work, resolve, reject });
      if (this.first.length + this.second.length > MAX_WAITING) (this.second.shift() ?? this.first.shift())?.reject(new NotNow("Too many diagrams are waiting to be drawn"));
      void this.run();
    });
  }

  private async run(): Promise<void> {
    if (this.isBusy) return;
    this.isBusy = true;
    for (;;) {
      const isFirst = this.first.length > 0;
      const job = this.first.pop() ?? this.second.shift();
      if (!job) break;
      try {
        job.resolve(await job.work(isFirst ? FIRST_TRY : SECOND_TRY));
      } catch (wrong) {
        if (isFirst && wrong instanceof TooLate) this.second.push(job);
        else job.reject(wrong as Error);
      }
    }
    this.isBusy = false;
  }
}
