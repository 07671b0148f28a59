/**
 * Reads one connection of an event stream until it ends, for `stream.ts` and `feed.ts`. A silent connection is reported
 * when a heartbeat is overdue, and closed after three missing heartbeats (PROTOCOL §4).
 */

import type { RetryPolicy } from "./backoff.js";
import { after, now } from "./clock.js";
import { FrameParser, FrameTooLarge, type Frame } from "./frames.js";

/** An event is missing, so the caller begins again with a snapshot. */
export class Missed extends Error {}

export interface Reader {
  /** Receives each frame, in order. If this function throws Missed, reading ends. */
  frame(frame: Frame): void;
  /** A heartbeat is overdue: no byte has arrived since `heardAt`, a time of `now()`. */
  quiet(heardAt: number): void;
  /** Bytes arrive again after `quiet`. */
  heard(): void;
}

/**
 * Reads until the connection ends or `signal` aborts. Returns the reason of the end ("" after an abort), and the
 * milliseconds for which the server asked the client not to reconnect. Throws Missed if an event is missing, and
 * FrameTooLarge.
 */
export async function readLine(
  bytes: ReadableStream<Uint8Array>,
  signal: AbortSignal,
  { quietMs, silenceMs }: RetryPolicy,
  to: Reader,
): Promise<[reason: string, retryMs: number]> {
  const reader = bytes.getReader();
  const parser = new FrameParser();
  let reason = "the server ended the stream";
  let retryMs = 0;
  let isQuiet = false;
  let heardAt = now();
  let cancel = () => {};
  const stop = () => void reader.cancel().catch(() => {});
  const giveUp = () => {
    reason = "the line fell silent";
    stop();
  };
  const tell = () => {
    isQuiet = true;
    to.quiet(heardAt);
    cancel = after(Math.max(0, heardAt + silenceMs - now()), giveUp); // a laptop may have slept meanwhile
  };
  signal.addEventListener("abort", stop, { once: true });
  try {
    for (;;) {
      cancel();
      heardAt = now();
      cancel = quietMs < silenceMs ? after(quietMs, tell) : after(silenceMs, giveUp);
      const { done, value } = await reader.read();
      // A server that shuts down ends its stream with `retry` (PROTOCOL §4).
      if (done) return [signal.aborted ? "" : retryMs ? "the server is shutting down" : reason, retryMs];
      if (isQuiet) to.heard();
      isQuiet = false;
      for (const frame of parser.feed(value)) {
        retryMs = frame.kind === "retry" ? frame.milliseconds : 0;
        to.frame(frame);
      }
    }
  } catch (wrong) {
    if (wrong instanceof Missed || wrong instanceof FrameTooLarge) throw wrong;
    return [signal.aborted ? "" : "the connection broke", 0];
  } finally {
    cancel();
    signal.removeEventListener("abort", stop);
    stop();
  }
}
