/**
 * How we stand to the server, in words. Pure: what the client says goes in, what people read comes out.
 *
 * The rule: nothing is said that is not so. "Live" is said when all that was missed has come, and nothing that was sent
 * is kept from being posted; a browser without a network is told as one only while the server is in fact out of reach.
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
  /** What was sent and is not posted; "" when there is nothing. */
  readonly waiting: string;
  /** Why; "" when there is nothing to say. Without what changes every second, since it is read out. */
  readonly cause: string;
  /** The text that changes every second: the time to the next try, or the length of the silence; "" for neither. */
  readonly seconds: string;
  /** Whether the person can start a try early; false while a try is being made. */
  readonly canTry: boolean;
}

export function standing({ connection, isReady, failure, hasNetwork, nowMs }: Facts): Standing {
  const { state, held, reason, retryAt, silentSince } = connection;
  const waiting = held ? `${held} waiting to be sent` : "";
  const say = (kind: Standing["kind"], word: string, cause = "", seconds = ""): Standing => ({
    kind,
    word,
    waiting: failure ? "" : waiting,
    cause,
    seconds,
    canTry: kind === "offline" && seconds !== "",
  });
  if (failure) {
    const { status = 0, message } = failure;
    if (status === 404) return isReady ? say("refused", "deleted") : say("refused", "no such chat");
    return say("refused", status === 403 ? "no permission" : "ended", message);
  }
  if (connection.isSignedOut) return say("refused", "signed out");
  if (connection.isResting) return say("busy", "not followed", reason);
  if (state !== "offline" && silentSince !== undefined) {
    return say("offline", "no word from the server", "", `for ${Math.floor((nowMs - silentSince) / 1000)} s`);
  }
  if (state === "live") return held && reason ? say("busy", "receiving, not sending", reason) : say("live", "live");
  if (state === "catching_up") return say("busy", isReady ? "catching up" : "opening", reason);
  const isTrying = retryAt === undefined || retryAt <= nowMs;
  if (isTrying && (reason === undefined || reason === REQUESTED)) return say("busy", "connecting");
  const cause = hasNetwork ? reason : "this device has no network";
  if (isTrying) return say("offline", "offline", `${cause}, trying again now`);
  return say("offline", "offline", cause, `again in ${Math.ceil((retryAt - nowMs) / 1000)} s`);
}

/** All of it as one sentence. */
export function sentence({ word, waiting, cause }: Standing): string {
  return [word, waiting, cause].filter(Boolean).join(", ");
}

/** What the client says of a connection that was given up by us, be it by hand or for another chat. */
const REQUESTED = "connecting again";
