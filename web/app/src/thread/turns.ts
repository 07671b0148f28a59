/**
 * Groups messages into turns: a person's message, the whole answer to it, or a message of another role.
 *
 * An answer may have several rounds with tool calls between them; people see it as one answer. Results of tools are
 * shown with their calls. Pure. A turn with unchanged messages is the same object as before, so that only the growing
 * answer is drawn again.
 */

import { failureOf, type Message } from "threadcast-client";

export interface Turn {
  readonly kind: "user" | "answer" | "note";
  /** The id of the turn's first message. */
  readonly id: string;
  readonly messages: readonly Message[];
  /** The message that holds the turn's failure: the turn's last message, which may be a tool's result. */
  readonly failed: Message | null;
}

export function turnsAfter(before: readonly Turn[], messages: readonly Message[]): readonly Turn[] {
  const turns: Turn[] = [];
  let kind: Turn["kind"] = "note";
  let open: Message[] = [];
  let last: Message | null = null;
  const close = (isAnswered: boolean) => {
    const failed = last && !isAnswered && failureOf(last) ? last : null;
    if (open.length) turns.push(kept(before[turns.length], kind, open, failed));
    open = [];
  };
  for (const message of messages) {
    if (message.hidden) continue;
    if (message.role === "tool") {
      last = message;
      continue;
    }
    const isAnswer = message.role === "assistant";
    if (!isAnswer || kind !== "answer" || !open.length) close(isAnswer);
    kind = isAnswer ? "answer" : message.role === "user" ? "user" : "note";
    open = [...open, message];
    last = message;
  }
  close(false);
  return turns.length === before.length && turns.every((turn, at) => turn === before[at]) ? before : turns;
}

function kept(old: Turn | undefined, kind: Turn["kind"], messages: Message[], failed: Message | null): Turn {
  const isSame =
    old?.kind === kind &&
    old.failed === failed &&
    old.messages.length === messages.length &&
    messages.every((message, at) => message === old.messages[at]);
  return isSame ? old : { kind, id: (messages[0] as Message).message_id, messages, failed };
}

/** Returns the index of the turn with this message; -1 if there is none. */
export function turnOf(turns: readonly Turn[], messageId: string): number {
  return turns.findIndex((turn) => turn.messages.some((message) => message.message_id === messageId));
}
