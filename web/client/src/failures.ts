/** Reads from a message why its run ended without a complete answer (PROTOCOL §8). Pure. */

import type { Message } from "./types.js";

export interface Failure {
  /** A code of PROTOCOL §17. */
  readonly code: string;
  /** The server's fixed sentence. */
  readonly message: string;
  /** The error text of the model's provider. This text is untrusted, so show it only as plain text. */
  readonly reason?: string;
  /** The provider's HTTP status. */
  readonly status?: number;
  /** The provider asks not to be called before this time, in Unix milliseconds. */
  readonly retryAt?: number;
  /** The model that was called, as `provider/model`. */
  readonly model?: string;
}

/** The latest time that a `Date` can represent (ECMA-262, Time Values and Time Range). */
const LAST_MS = 8.64e15;

/**
 * Returns the failure of a message; null if the message has no readable failure. Impossible values, such as a status of
 * -1 in an imported chat, are left out. A later answer on the path supersedes the failure.
 */
export function failureOf(message: Message): Failure | null {
  const found = message.extra?.failure as Record<string, unknown> | null | undefined;
  if (typeof found?.code !== "string" || typeof found.message !== "string") return null;
  const { code, message: sentence, reason, status, retry_at, model } = found;
  return {
    code,
    message: sentence,
    ...(typeof reason === "string" && reason && { reason }),
    ...(isWithin(status, 100, 599) && Number.isInteger(status) && { status }),
    ...(isWithin(retry_at, 0, LAST_MS) && { retryAt: retry_at }),
    ...(typeof model === "string" && model && { model }),
  };
}

/** Returns how long the model reasoned before it answered, in milliseconds; null if unknown. */
export function reasoningMsOf(message: Message): number | null {
  const ms = message.extra?.reasoning_ms;
  return isWithin(ms, 0, DAY_MS) && ms > 0 ? ms : null;
}

/** The maximum time of reasoning; longer times are ignored as impossible. */
const DAY_MS = 86_400_000;

function isWithin(found: unknown, least: number, most: number): found is number {
  return typeof found === "number" && found >= least && found <= most;
}
