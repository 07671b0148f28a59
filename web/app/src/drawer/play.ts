/** Computes the steps and times of time travel. Pure. */

import type { ChatState } from "threadcast-client";

/** Returns the position after `at` when playing in steps of `step` positions; null at the end. */
export function nextStop(at: number, last: number, step: number): number | null {
  return at >= last ? null : Math.min(at + Math.max(1, step), last);
}

/**
 * Returns the step sizes to choose from, so that playing the whole chat takes from a minute down to seconds (at ten
 * steps a second).
 */
export function speedsFor(positions: number): number[] {
  const slow = Math.max(1, Math.ceil(positions / 600));
  return [slow, slow * 4, slow * 16];
}

/**
 * Returns when the newest message of this state was begun, in milliseconds since the epoch; null if there are no
 * messages.
 */
export function momentOf(state: ChatState): number | null {
  const times = state.path.map((id) => state.nodes.get(id)?.created_at ?? 0);
  return Math.max(0, ...times) || null;
}

/** Returns the local time of day, with the date if it is not today, and with the year if it is not this year. */
export function clockOf(ms: number, nowMs: number, locale?: string): string {
  const then = new Date(ms);
  const now = new Date(nowMs);
  const isToday = then.toDateString() === now.toDateString();
  const year = then.getFullYear() === now.getFullYear() ? undefined : "numeric";
  const time = { hour: "2-digit", minute: "2-digit" } as const;
  return then.toLocaleString(locale, isToday ? time : { day: "numeric", month: "short", year, ...time });
}
