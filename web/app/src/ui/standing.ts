/**
 * How we stand to the server, in words. Pure: what the client says goes in, what people read comes out.
 *
 * The rule: nothing is said that is not so. "Live" is said when all that was missed has come and all that was sent is
 * posted; a browser without a network is told as one only while the server is in fact out of reach.
 */

import type { Connection } from "threadcast-client";

export interface Facts {
  readonly connection: Connection;
  /** Whether this chat was ever seen since it was opened. */
  readonly isReady: boolean;
  /** Why there will be no more of this chat. */
  readonly failure: { readonly message: string; readonly status?: number } | null;
  /** What the browser believes of its network. */
  readonly hasNetwork: boolean;
  readonly nowMs: number;
}

export interface Standing {
  readonly kind: "live" | "busy" | "offline" | "refused";
  /** A word or two, for the bar. */
  readonly word: string;
  /** All of it, but for what changes every second, for a screen reader and the tip. */
  readonly detail: string;
  /** Seconds until the next try; null when none is waited for. */
  readonly retrySeconds: number | null;
}

export function standing({ connection, isReady, failure, hasNetwork, nowMs }: Facts): Standing {
  const { state, held, reason, retryAt } = connection;
  const waiting = held ? `${held} waiting to be sent` : "";
  const say = (kind: Standing["kind"], word: string, more: (string | undefined)[], retrySeconds: number | null = null) => ({
    kind,
    word,
    detail: [word, ...more].filter(Boolean).join(", "),
    retrySeconds,
  });
  if (failure) {
    const { status = 0, message } = failure;
    const word = status === 401 || status === 403 ? "no permission" : status === 404 ? "no such chat" : "ended";
    return say("refused", word, [message]);
  }
  if (state === "live") return say("live", "live", held ? [waiting, reason] : []);
  if (state === "catching_up") return say("busy", isReady ? "catching up" : "opening", [waiting, reason]);
  const isTrying = retryAt === undefined || retryAt <= nowMs;
  if (isTrying && (reason === undefined || reason === REQUESTED)) return say("busy", "connecting", [waiting]);
  const cause = hasNetwork ? reason : "this device has no network";
  const seconds = isTrying ? null : Math.ceil(((retryAt ?? 0) - nowMs) / 1000);
  return say("offline", "offline", [waiting, cause, isTrying ? "trying again now" : undefined], seconds);
}

/** What the client says of a connection that was given up by us, be it by hand or for another chat. */
const REQUESTED = "connecting again";
