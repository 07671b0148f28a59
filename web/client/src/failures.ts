/** Why a run ended without a complete answer, stored with the message that it failed for (PROTOCOL §8). Pure. */

import type { Message } from "./types.js";

export interface Failure {
  /** A code of PROTOCOL §17. */
  readonly code: string;
  /** The server's fixed sentence. */
  readonly message: string;
  /** What the model's provider said: untrusted, so show it as plain text only. */
  readonly reason?: string;
  /** The provider's HTTP status. */
  readonly status?: number;
  /** The time before which the provider asks not to be called again, Unix milliseconds. */
  readonly retryAt?: number;
  /** Which model was asked, as `provider/model`. */
  readonly model?: string;
}

/** The last moment that a `Date` can tell (ECMA-262, Time Values and Time Range). */
const LAST_MS = 8.64e15;

/**
 * The failure of this message; null if it has no readable one. Impossible values, such as a status of -1 in an imported
 * chat, are left out. A later answer on the path supersedes the failure.
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

/** How long the model thought before it answered, in milliseconds; null if unknown. */
export function reasoningMsOf(message: Message): number | null {
  const ms = message.extra?.reasoning_ms;
  return isWithin(ms, 0, DAY_MS) && ms > 0 ? ms : null;
}

/** No model thinks for longer. */
const DAY_MS = 86_400_000;

function isWithin(found: unknown, least: number, most: number): found is number {
  return typeof found === "number" && found >= least && found <= most;
}
