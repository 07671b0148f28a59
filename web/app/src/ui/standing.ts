/**
 * Describes the state of the connection in words. Pure.
 *
 * "Live" is shown only when all missed events have arrived and all sent messages are posted. A missing network is named
 * only while the server cannot be reached.
 */

import type { Connection } from "threadcast-client";

export interface Facts {
  readonly connection: Connection;
  /** Whether a snapshot of this chat has arrived since it was opened. */
  readonly isReady: boolean;
  /** The reason why this chat's stream has ended. */
  readonly failure: { readonly message: string; readonly status?: number } | null;
  /** Whether the browser reports a network. */
  readonly hasNetwork: boolean;
  readonly nowMs: number;
}

export interface Standing {
  readonly kind: "live" | "busy" | "offline" | "refused";
  /** One or two words for the bar. */
  readonly word: string;
  /** The number of messages that are not posted yet, in words; "" if all messages are posted. */
  readonly waiting: string;
  /**
   * The reason; "" for none. The reason excludes the text that changes every second, because screen readers announce
   * the reason.
   */
  readonly cause: string;
  /**
   * The text that changes every second: the time to the next try, or the length of the silence; "" if no try or silence
   * is shown.
   */
  readonly seconds: string;
  /** Whether the person can start the next try early; false during a try. */
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
    return say("offline", "no data from the server", "", `for ${Math.floor((nowMs - silentSince) / 1000)} s`);
  }
  if (state === "live") return held && reason ? say("busy", "receiving, not sending", reason) : say("live", "live");
  if (state === "catching_up") return say("busy", isReady ? "catching up" : "opening", reason);
  const isTrying = retryAt === undefined || retryAt <= nowMs;
  if (isTrying && (reason === undefined || reason === REQUESTED)) return say("busy", "connecting");
  const cause = hasNetwork ? reason : "this device has no network";
  if (isTrying) return say("offline", "offline", `${cause}, trying again now`);
  return say("offline", "offline", cause, `again in ${Math.ceil((retryAt - nowMs) / 1000)} s`);
}

/** Joins all texts into one sentence. */
export function sentence({ word, waiting, cause }: Standing): string {
  return [word, waiting, cause].filter(Boolean).join(", ");
}

/** The client's reason for a connection that this page has closed itself. */
const REQUESTED = "connecting again";
