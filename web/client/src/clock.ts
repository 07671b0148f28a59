/**
 * Measures all durations of this client, and carries out all its waits.
 *
 * `Date.now` follows the system clock, which people and NTP set forward and back; `performance.now` does not. A timer
 * may fire up to a millisecond before its time (Node.js and browsers round to whole milliseconds), and a timer of 2^31
 * ms or more fires at once (HTML, "timers": the delay is a signed 32-bit number). Each wait of this module therefore
 * checks the clock, and continues if its time has not passed.
 */

/** A timer with a longer delay fires at once, in browsers and in Node.js. */
export const TIMER_MAX_MS = 2 ** 31 - 1;

/**
 * Returns milliseconds on a clock that is never adjusted. Only the difference between two values has a meaning.
 */
export function now(): number {
  return performance.now();
}

/**
 * Calls `act` once after at least `ms` milliseconds, and never during this call; with `Infinity`, `act` is never
 * called. Returns a function that cancels the call.
 */
export function after(ms: number, act: () => void): () => void {
  const due = now() + ms;
  let timer = setTimeout(look, delay(ms));
  return () => clearTimeout(timer);

  function look(): void {
    const left = due - now();
    if (left > 0) timer = setTimeout(look, delay(left));
    else act();
  }
}

/** Waits `ms` milliseconds. Resolves early if `signal` aborts. */
export function sleep(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((done) => {
    if (signal?.aborted) return done();
    const cancel = after(ms, end);
    signal?.addEventListener("abort", end, { once: true });
    function end(): void {
      cancel();
      signal?.removeEventListener("abort", end);
      done();
    }
  });
}

function delay(ms: number): number {
  return Math.min(Math.ceil(ms), TIMER_MAX_MS);
}
