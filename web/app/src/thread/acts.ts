/**
 * Sends the commands for actions on a message (PROTOCOL §2). While a run is open, edits and new answers wait in the
 * queue.
 */

import { signal } from "@preact/signals";
import { type ContentPart, newId, Refused, textOf, type Message } from "threadcast-client";

import { ask, command, rewrite, type When } from "../state/actions.ts";
import { addressOf, go } from "../state/route.ts";
import { chat, notifyOf } from "../state/session.ts";
import { copied } from "../ui/clipboard.ts";
import type { Part } from "./parts.tsx";

/** Requests another answer beside the present one. `messageId` is the id of an answer or of a person's message. */
export function regenerate(messageId?: string, model?: string): Promise<boolean> {
  return command({ type: "regenerate", ...(messageId && { message_id: messageId }), ...(model && { model }) });
}

export function goOn(messageId: string): Promise<boolean> {
  return command({ type: "continue_message", message_id: messageId });
}

/** Sends a changed version of a message as a new branch, which gets a new answer; images and files stay. */
export async function edit(message: Message, text: string, when: When): Promise<void> {
  const attached: Part[] = typeof message.content === "string" ? [] : message.content.filter((part) => part.type !== "text");
  // A new text leaves the attachments unchanged; a list of parts replaces the whole message. The server accepts parts
  // in the form in which it sends them.
  const content = text || (attached as ContentPart[]);
  const opened = chat.peek();
  try {
    if (opened) await rewrite(opened, message.message_id, { content }, when).accepted;
  } catch (wrong) {
    if (!(wrong instanceof Refused)) notifyOf(wrong); // `session.ts` reports refusals
  }
}

export function select(messageId: string): Promise<boolean> {
  return command({ type: "select_branch", message_id: messageId });
}

export function remove(messageId: string): Promise<boolean> {
  return command({ type: "remove_message", message_id: messageId });
}

/** Copies everything up to this message into a new chat, and opens that chat. */
export async function fork(messageId: string): Promise<void> {
  const source = chat.peek()?.id;
  if (!source) return;
  const id = newId();
  const taken = await ask("POST", `/v1/chats/${id}/commands`, {
    type: "branch_from_chat",
    client_request_id: newId(),
    source_chat_id: source,
    up_to_message_id: messageId,
  });
  if (taken) go(id);
}

/** Copies the text of these messages, without answers that were refused and repeated. */
export function copyText(messages: readonly Message[]): Promise<boolean> {
  return copied(messages.filter(({ kind }) => kind !== "refused").map(textOf).filter(Boolean).join("\n\n"));
}

export function linkTo(messageId: string): string {
  return `${location.origin}${addressOf(chat.peek()?.id ?? "", "")}#m-${messageId}`;
}

/** The open dialog, which asks for the model of another answer, or whether to delete a message. */
export const asked = signal<{ what: "model" | "delete"; messageId: string } | null>(null);
