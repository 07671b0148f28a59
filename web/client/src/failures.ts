/** Why a run ended without a whole answer, as it stands with the message that it failed for (PROTOCOL §8). Pure. */

import type { Message } from "./types.js";

export interface Failure {
  /** Of PROTOCOL §17. */
  readonly code: string;
  /** The server's fixed sentence. */
  readonly message: string;
  /** What the model's provider said: a stranger's text, to be shown as text and nothing else. */
  readonly reason?: string;
  /** The provider's HTTP status. */
  readonly status?: number;
  /** Before then the provider asks not to be tried again, Unix milliseconds. */
  readonly retryAt?: number;
  /** Which model was asked, as `provider/model`. */
  readonly model?: string;
}

/** The failure of this message; null where none stands that can be read. An answer after it on the path supersedes it. */
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

/** How long the model thought before it spoke, in milliseconds; null where nobody measured. */
export function reasoningMsOf(message: Message): number | null {
  const ms = message.extra?.reasoning_ms;
  return typeof ms === "number" && ms > 0 ? ms : null;
}
