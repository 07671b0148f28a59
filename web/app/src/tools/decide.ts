/**
 * A person's word on its way: which questions were answered here and not yet heard of, and which answers were refused.
 *
 * The question itself goes when the log says so, in every tab; nothing is taken off the screen before.
 */

import { effect, signal } from "@preact/signals";
import { newId, type PauseReason, type PayloadAdded, type Sendable } from "threadcast-client";

import { command } from "../state/actions.ts";
import { chat } from "../state/session.ts";

export interface Standing {
  readonly requestId: string;
  /** Why it was refused; null while it is on its way. */
  readonly error: string | null;
}

const standings = signal<ReadonlyMap<string, Standing>>(new Map());

/** A call may be asked about again with other arguments; that is another question. */
export function questionKey(asked: PauseReason | PayloadAdded): string {
  return `${"payload_id" in asked ? asked.payload_id : asked.tool_call_id}:${asked.input_hash ?? ""}`;
}

export function standingOf(key: string): Standing | undefined {
  return standings.value.get(key);
}

export function isSent(key: string): boolean {
  const standing = standings.value.get(key);
  return standing !== undefined && standing.error === null;
}

effect(() => {
  standings.value = new Map();
  return chat.value?.onRefused((requestId, wrong) => refuse(requestId, wrong.message));
});

function refuse(requestId: string, error: string): void {
  change(requestId, () => ({ requestId, error }));
}

/** Each question that this command has answered stands as `stands` says; null: as if it were not answered. */
function change(requestId: string, stands: (now: Standing) => Standing | null): void {
  const after = new Map<string, Standing>();
  for (const [key, standing] of standings.peek()) {
    const next = standing.requestId === requestId ? stands(standing) : standing;
    if (next) after.set(key, next);
  }
  standings.value = after;
}

/** Send the answer to these questions. What is refused gives them back, with the reason. */
export function answer(keys: readonly string[], decision: Sendable): void {
  const requestId = newId();
  const now = new Map(standings.peek());
  for (const key of keys) now.set(key, { requestId, error: null });
  standings.value = now;
  void command({ ...decision, client_request_id: requestId }).then((isTaken) => {
    // Not sent at all, and a notice says why; or refused with a reason, which stays.
    if (!isTaken) change(requestId, (standing) => (standing.error === null ? null : standing));
  });
}
