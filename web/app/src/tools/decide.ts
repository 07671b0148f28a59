/**
 * Tracks the answers that a person has sent from this page: the answers that are not confirmed yet, and the answers
 * that were refused. The question itself disappears in every tab when an event of the log ends it.
 */

import { effect, signal } from "@preact/signals";
import { newId, type JsonObject, type PauseReason, type PayloadAdded, type Sendable } from "threadcast-client";

import { command } from "../state/actions.ts";
import { chat } from "../state/session.ts";

export interface Standing {
  readonly requestId: string;
  /** The reason why the answer was refused; null while the answer is not confirmed. */
  readonly error: string | null;
}

export interface DecisionDetails {
  readonly remember?: "tool" | "server";
  readonly edited_input?: JsonObject;
  readonly note?: string;
}

const standings = signal<ReadonlyMap<string, Standing>>(new Map());

/** A key that includes the arguments, because a call may be asked about again with other arguments. */
export function questionKey(asked: PauseReason | PayloadAdded): string {
  return `${"payload_id" in asked ? asked.payload_id : asked.tool_call_id}:${asked.input_hash ?? ""}`;
}

/** Accepts or refuses a call or a preview. The decision is bound to the arguments that the person has seen. */
export function decide(asked: PauseReason | PayloadAdded, accepted: boolean, more: DecisionDetails = {}): void {
  const id = "payload_id" in asked ? { payload_id: asked.payload_id } : { tool_call_id: asked.tool_call_id };
  answer([questionKey(asked)], { type: "tool_decision", ...id, accepted, input_hash: asked.input_hash || null, ...more });
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

/** Sets the state of all questions that a command has answered; null means not answered. */
function change(requestId: string, stands: (now: Standing) => Standing | null): void {
  const after = new Map<string, Standing>();
  for (const [key, standing] of standings.peek()) {
    const next = standing.requestId === requestId ? stands(standing) : standing;
    if (next) after.set(key, next);
  }
  standings.value = after;
}

/**
 * Sends the answer to these questions. If it is refused, the questions can be answered again, and the reason is shown.
 */
export function answer(keys: readonly string[], decision: Sendable): void {
  const requestId = newId();
  const now = new Map(standings.peek());
  for (const key of keys) now.set(key, { requestId, error: null });
  standings.value = now;
  void command({ ...decision, client_request_id: requestId }).then((isTaken) => {
    // If the answer could not be sent, a notice says why. If the answer was refused, the reason is still shown.
    if (!isTaken) change(requestId, (standing) => (standing.error === null ? null : standing));
  });
}
