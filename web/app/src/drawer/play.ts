/** The arithmetic of time travel. Pure. */

import type { ChatState } from "threadcast-client";

/** Where a play goes from `at` in steps of `step` positions; null when it stands at the end. */
export function nextStop(at: number, last: number, step: number): number | null {
  return at >= last ? null : Math.min(at + Math.max(1, step), last);
}

/** Steps to choose from, so that a play of the whole lasts from a minute down to seconds (ten steps a second). */
export function speedsFor(positions: number): number[] {
  const slow = Math.max(1, Math.ceil(positions / 600));
  return [slow, slow * 4, slow * 16];
}

/** When the newest message that stands there was begun, in milliseconds since the epoch; null before the first. */
export function momentOf(state: ChatState): number | null {
  const times = state.path.map((id) => state.nodes.get(id)?.created_at ?? 0);
  return Math.max(0, ...times) || null;
}

/** As a clock of this place shows it; with the day when that is another. */
export function clockOf(ms: number, nowMs: number, locale?: string): string {
  const then = new Date(ms);
  const isToday = then.toDateString() === new Date(nowMs).toDateString();
  const time = { hour: "2-digit", minute: "2-digit" } as const;
  return then.toLocaleString(locale, isToday ? time : { day: "numeric", month: "short", ...time });
}
