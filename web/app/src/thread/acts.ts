/** What people do with a message, as commands (PROTOCOL §2). Edits and answers wait their turn when a run is open. */

import { signal } from "@preact/signals";
import { newId, textOf, type Message } from "threadcast-client";

import { ask, command } from "../state/actions.ts";
import { addressOf, go } from "../state/route.ts";
import { chat } from "../state/session.ts";
import { copied } from "../ui/clipboard.ts";
import type { Part } from "./parts.tsx";

/** Answer again, beside what was answered. Of a person's message: answer it again. */
export function regenerate(messageId?: string, model?: string): Promise<boolean> {
  return command({ type: "regenerate", ...(messageId && { message_id: messageId }), ...(model && { model }) });
}

export function goOn(messageId: string): Promise<boolean> {
  return command({ type: "continue_message", message_id: messageId });
}

/** Other words beside the old ones, answered anew; images and files stay. */
export function edit(message: Message, text: string): Promise<boolean> {
  const attached: Part[] = typeof message.content === "string" ? [] : message.content.filter((part) => part.type !== "text");
  const content = text || attached; // words alone leave what is attached, a list of parts is all of the message
  return command({ type: "update_message", message_id: message.message_id, content, mode: "branch", regenerate: true });
}

export function select(messageId: string): Promise<boolean> {
  return command({ type: "select_branch", message_id: messageId });
}

export function remove(messageId: string): Promise<boolean> {
  return command({ type: "remove_message", message_id: messageId });
}

/** A new chat that begins with everything up to here; we go there. */
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

export function copyText(messages: readonly Message[]): Promise<boolean> {
  return copied(messages.map(textOf).filter(Boolean).join("\n\n"));
}

export function linkTo(messageId: string): string {
  return `${location.origin}${addressOf(chat.peek()?.id ?? "", "")}#m-${messageId}`;
}

/** Questions that stand above the page: with which model, and whether really. */
export const asked = signal<{ what: "model" | "delete"; messageId: string } | null>(null);
