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

/** The failure of this message; null if it has no readable one. A later answer on the path supersedes the failure. */
export function failureOf(message: Message): Failure | null {
  const found = message.extra?.failure as Record<string, unknown> | null | undefined;
  if (typeof found?.code !== "string" || typeof found.message !== "string") return null;
  const { code, message: sentence, reason, status, retry_at, model } = found;
  return {
    code,
    message: sentence,
    ...(typeof reason === "string" && reason && { reason }),
    ...(typeof status === "number" && { status }),
    ...(typeof retry_at === "number" && { retryAt: retry_at }),
    ...(typeof model === "string" && model && { model }),
  };
}

/** How long the model thought before it answered, in milliseconds; null if unknown. */
export function reasoningMsOf(message: Message): number | null {
  const ms = message.extra?.reasoning_ms;
  return typeof ms === "number" && ms > 0 ? ms : null;
}
