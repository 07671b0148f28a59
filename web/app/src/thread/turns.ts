/**
 * Messages to turns: what a person said, what was answered to it, and what else stands between.
 *
 * An answer may take several rounds with tool calls between them; people see one answer. Results of tools are shown with
 * their calls and make no turn. Pure; a turn whose messages are the same objects is the same object, so that a frame in
 * which one answer grows draws that answer alone.
 */

import type { Message } from "threadcast-client";

export interface Turn {
  readonly kind: "user" | "answer" | "note";
  /** Of its first message. */
  readonly id: string;
  readonly messages: readonly Message[];
}

export function turnsAfter(before: readonly Turn[], messages: readonly Message[]): readonly Turn[] {
  const turns: Turn[] = [];
  let rounds: Message[] | null = null;
  const close = () => {
    if (rounds) turns.push(kept(before[turns.length], "answer", rounds));
    rounds = null;
  };
  for (const message of messages) {
    if (message.hidden || message.role === "tool") continue;
    if (message.role === "assistant") {
      rounds = [...(rounds ?? []), message];
      continue;
    }
    close();
    turns.push(kept(before[turns.length], message.role === "user" ? "user" : "note", [message]));
  }
  close();
  return turns.length === before.length && turns.every((turn, at) => turn === before[at]) ? before : turns;
}

function kept(old: Turn | undefined, kind: Turn["kind"], messages: Message[]): Turn {
  const isSame =
    old?.kind === kind &&
    old.messages.length === messages.length &&
    messages.every((message, at) => message === old.messages[at]);
  return isSame ? old : { kind, id: (messages[0] as Message).message_id, messages };
}

/** Where the turn that holds this message stands; -1 when none does. */
export function turnOf(turns: readonly Turn[], messageId: string): number {
  return turns.findIndex((turn) => turn.messages.some((message) => message.message_id === messageId));
}
