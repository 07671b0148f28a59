/**
 * What is being written into the open chat, and how it leaves: as a message of ours, which is given back if it is not
 * taken, or if it is withdrawn (`composer/withdrawing.ts`). The rule: text is never lost.
 */

import { effect, signal } from "@preact/signals";
import { newId, Refused, type Chat, type JsonObject, type Sendable } from "threadcast-client";

import { partOf } from "../composer/files.ts";
import { patchOf } from "./choices.ts";
import { chosen } from "./chosen.ts";
import { Drafts, EMPTY, homeOf, type Draft, type DraftFile } from "./drafts.ts";
import { withContext } from "./place.ts";
import { go, route } from "./route.ts";
import { chat, notifyOf } from "./session.ts";
import { person } from "./storage.ts";

const drafts = new Drafts(person);

/** The draft of the open chat. */
export const written = signal<Draft>(EMPTY);

/** The message of ours that is being edited in the place where people write, and what it holds besides text. */
export const editing = signal<{ messageId: string; parts: readonly object[] } | null>(null);

/** What was refused, to be taken up again or dropped. */
export interface Unsent {
  readonly id: string;
  readonly chatId: string;
  readonly draft: Draft;
  readonly reason: string;
}
export const unsent = signal<readonly Unsent[]>([]);

effect(() => {
  written.value = drafts.read(route.value.chatId);
  editing.value = null;
});

addEventListener("storage", (event) => {
  const { key, oldValue, newValue } = event;
  const heard = drafts.heard({ key: person.keyOf(key), oldValue, newValue });
  if (heard && heard[0] === route.peek().chatId && !editing.peek()) written.value = heard[1];
});

export function write(draft: Partial<Draft>): void {
  written.value = { ...written.peek(), ...draft };
  // What is edited is a message; what was being written before is kept for after.
  if (!editing.peek()) drafts.write(route.peek().chatId, written.peek());
}

export function edit(messageId: string, text: string, parts: readonly object[]): void {
  editing.value = { messageId, parts };
  written.value = { text, files: [] };
}

export function stopEditing(): void {
  editing.value = null;
  written.value = drafts.read(route.peek().chatId);
}

let nextId: string | null = null;

/** The id of the open chat, or the one that it will have. Uploads are addressed to it, also before it begins. */
export function targetId(): string {
  return route.peek().chatId ?? (nextId ??= homeOf(drafts.read(null)) ?? newId());
}

/**
 * The open chat; if none has begun, creates a chat, which takes over the draft. The new chat begins with the remembered
 * choices, and with `context` as its own if that is given.
 */
export function begin(context?: JsonObject): Chat | null {
  const isNew = route.peek().chatId === null;
  if (isNew) {
    const id = targetId();
    nextId = null;
    drafts.move(null, id);
    go(id);
  }
  const opened = chat.peek();
  const isUnbegun = isNew || (opened?.isReady && opened.state.position === 0 && !opened.waiting.length);
  const patch = { ...(isUnbegun && patchOf(chosen.peek())), ...(context && { context }) };
  if (opened && Object.keys(patch).length) opened.send({ type: "set_params", patch });
  return opened;
}

/** Sends a prepared message, such as a starter; the draft stays unchanged. */
export function say({ text, model, context }: { text: string; model?: string; context?: JsonObject }): void {
  const own = context && Object.keys(context).length ? context : undefined;
  try {
    begin(own)?.send({ type: "user_message", content: text, ...withContext(own), ...(model && { params: { model } }) });
  } catch (wrong) {
    notifyOf(wrong);
  }
}

/** A file has come to the server; it belongs to what is written there, also when somebody looks elsewhere by now. */
export function addFile(target: string, file: DraftFile): void {
  if (target === targetId()) return write({ files: [...written.peek().files, file] });
  const draft = drafts.read(target);
  drafts.write(target, { ...draft, files: [...draft.files, file] });
}

export function removeFile(file: DraftFile): void {
  write({ files: written.peek().files.filter((other) => other !== file) });
}

/** When to send a message while a run is open: in its turn, after the current step, or in place of the run. */
export type When = "queue" | "next" | "stop";

const WHEN: Readonly<Record<When, { priority?: true; interrupt?: true }>> = {
  queue: {},
  next: { priority: true },
  stop: { interrupt: true },
};

/** Sends the draft. A message that is written anew makes a branch, and waits its turn. */
export function send(when: When = "queue"): void {
  const draft = written.peek();
  if (!draft.text.trim() && !draft.files.length && !editing.peek()?.parts.length) return;
  const edited = editing.peek();
  const opened = begin();
  if (!opened) return;
  try {
    if (edited) {
      const { messageId, parts: attachments } = edited;
      const words = { content: draft.text, attachments };
      const command = { type: "update_message", message_id: messageId, ...words, mode: "branch", regenerate: true };
      giveBack(opened, command as Sendable, draft);
      stopEditing();
    } else {
      const attachments = draft.files.map(partOf);
      const message = { type: "user_message", content: draft.text, attachments, ...withContext(), ...WHEN[when] } as const;
      sentDrafts.set(giveBack(opened, message, draft), draft);
      write(EMPTY);
    }
  } catch (wrong) {
    notifyOf(wrong);
  }
}

/** Drafts that this page has sent, by request id, so that a withdrawn message can be restored. */
export const sentDrafts = new Map<string, Draft>();

/** Why it was refused is shown by `session.ts`; what was written comes back, here. The request id. */
function giveBack(opened: Chat, command: Sendable, draft: Draft): string {
  const { accepted, requestId } = opened.send(command);
  const forget = () => sentDrafts.delete(requestId);
  accepted.then(forget, (wrong: unknown) => {
    if (!(wrong instanceof Refused)) return; // the outbox has it still
    forget();
    putBack(opened.id, draft, wrong.message);
  });
  return requestId;
}

/** Puts a draft back into the composer if that is empty; else beside the waiting messages, with the reason. */
export function putBack(chatId: string, draft: Draft, reason: string): void {
  const isOpen = route.peek().chatId === chatId && !editing.peek();
  const now = isOpen ? written.peek() : drafts.read(chatId);
  if (now.text || now.files.length) return keep(chatId, draft, reason);
  if (isOpen) write(draft);
  else drafts.write(chatId, draft);
}

/** Keeps a draft beside the waiting messages, where the person can take it up again or discard it. */
export function keep(chatId: string, draft: Draft, reason: string): void {
  unsent.value = [...unsent.peek(), { id: newId(), chatId, draft, reason }];
}

/** Take up what was refused again, after what is written by now. */
export function takeUp({ id, draft }: Unsent): void {
  const { text, files } = written.peek();
  write({ text: [text, draft.text].filter(Boolean).join("\n\n"), files: [...files, ...draft.files] });
  drop(id);
}

export function drop(id: string): void {
  unsent.value = unsent.peek().filter((one) => one.id !== id);
}
