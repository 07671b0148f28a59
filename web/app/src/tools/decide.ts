/**
 * A person's word on its way: which questions were answered here and not yet heard of, and which answers were refused.
 *
 * The question itself goes when the log says so, in every tab; nothing is taken off the screen before.
 */

import { effect, signal } from "@preact/signals";
import type { PauseReason, PayloadAdded, Sendable } from "threadcast-client";

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
  const left = [...standings.peek()].map(([key, standing]): [string, Standing] => [
    key,
    standing.requestId === requestId ? { requestId, error } : standing,
  ]);
  standings.value = new Map(left);
}

/** Send the answer to these questions. What is refused gives them back, with the reason. */
export function answer(keys: readonly string[], command: Sendable): void {
  const opened = chat.peek();
  if (!opened) return;
  const requestId = crypto.randomUUID();
  const now = new Map(standings.peek());
  for (const key of keys) now.set(key, { requestId, error: null });
  standings.value = now;
  try {
    opened.send({ ...command, client_request_id: requestId });
  } catch (wrong) {
    refuse(requestId, wrong instanceof Error ? wrong.message : String(wrong));
  }
}
