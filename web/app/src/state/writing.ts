/**
 * Holds the draft in the message box and sends it. A message that is refused or withdrawn (`composer/withdrawing.ts`)
 * becomes a draft again, so that no text is lost.
 */

import { effect, signal } from "@preact/signals";
import { type Attachment, newId, Refused, type Chat, type JsonObject, type Sent } from "threadcast-client";

import { partOf } from "../composer/files.ts";
import { rewrite, type When } from "./actions.ts";
import { patchOf } from "./choices.ts";
import { chosen } from "./chosen.ts";
import { Drafts, EMPTY, homeOf, type Draft, type DraftFile } from "./drafts.ts";
import { withContext } from "./page_context.ts";
import { go, route } from "./route.ts";
import { chat, notifyOf, reasonOf } from "./session.ts";
import { person } from "./storage.ts";

const drafts = new Drafts(person);

/** The draft of the open chat. */
export const written = signal<Draft>(EMPTY);

/** The person's message that is being edited in the message box, and its parts besides text. */
export const editing = signal<{ messageId: string; parts: readonly object[] } | null>(null);

/** Refused drafts, which the person can edit again or discard. */
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
  // While a message is edited, the stored draft does not change.
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

/** Returns the id of the open chat, or the id that the new chat will have; uploads need it before the chat begins. */
export function targetId(): string {
  return route.peek().chatId ?? (nextId ??= homeOf(drafts.read(null)) ?? newId());
}

/**
 * Returns the open chat. If no chat is open, creates a chat, which takes over the draft. The new chat begins with the
 * remembered choices, and with `own` parameters.
 */
export function begin(own: JsonObject = {}): Chat | null {
  const isNew = route.peek().chatId === null;
  if (isNew) {
    const id = targetId();
    nextId = null;
    drafts.move(null, id);
    go(id);
  }
  const opened = chat.peek();
  const isUnbegun = isNew || (opened?.isReady && opened.state.position === 0 && !opened.waiting.length);
  const patch = { ...(isUnbegun && patchOf(chosen.peek())), ...own };
  if (opened && Object.keys(patch).length) opened.send({ type: "set_params", patch });
  return opened;
}

/**
 * Sends a prepared message, such as a starter; the draft stays unchanged. `chatModel` and `context` become parameters
 * of the chat.
 */
export function say({ text, model, chatModel, context }: { text: string; model?: string; chatModel?: string; context?: JsonObject }): void {
  const own = context && Object.keys(context).length ? context : undefined;
  try {
    begin({ ...(own && { context: own }), ...(chatModel && { model: chatModel }) })?.send({ type: "user_message", content: text, ...withContext(own), ...(model && { params: { model } }) });
  } catch (wrong) {
    notifyOf(wrong);
  }
}

/** Adds an uploaded file to the draft of its chat, which may no longer be the open chat. */
export function addFile(target: string, file: DraftFile): void {
  if (target === targetId()) return write({ files: [...written.peek().files, file] });
  const draft = drafts.read(target);
  drafts.write(target, { ...draft, files: [...draft.files, file] });
}

export function removeFile(file: DraftFile): void {
  write({ files: written.peek().files.filter((other) => other !== file) });
}

const WHEN: Readonly<Record<When, { priority?: true; interrupt?: true }>> = {
  queue: {},
  next: { priority: true },
  stop: { interrupt: true },
};

/** Sends the draft. An edited message makes a new branch. */
export function send(when: When = "queue"): void {
  const draft = written.peek();
  if (!draft.text.trim() && !draft.files.length && !editing.peek()?.parts.length) return;
  const edited = editing.peek();
  const opened = begin();
  if (!opened) return;
  try {
    if (edited) {
      const { messageId, parts } = edited;
      giveBack(opened, rewrite(opened, messageId, { content: draft.text, attachments: parts as Attachment[] }, when), draft);
      stopEditing();
    } else {
      const attachments = draft.files.map(partOf);
      const message = { type: "user_message", content: draft.text, attachments, ...withContext(), ...WHEN[when] } as const;
      const sent = opened.send(message);
      sentDrafts.set(sent.requestId, draft);
      giveBack(opened, sent, draft);
      write(EMPTY);
    }
  } catch (wrong) {
    notifyOf(wrong);
  }
}

/** Drafts that this page has sent, by request id, so that a withdrawn message can be restored. */
export const sentDrafts = new Map<string, Draft>();

/** Restores a draft that is refused, at once or after the server had accepted it. `session.ts` shows the reason. */
function giveBack(opened: Chat, { accepted, acked, requestId }: Sent, draft: Draft): void {
  const forget = () => sentDrafts.delete(requestId);
  accepted.then(forget, () => {});
  acked.catch((wrong: unknown) => {
    if (!(wrong instanceof Refused) || wrong.code === "cancelled") return; // the outbox still has the command, or the person took it back
    forget();
    putBack(opened.id, draft, reasonOf(wrong));
  });
}

/**
 * Puts a draft back into the composer if the composer is empty, or else beside the waiting messages, with the reason.
 */
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

/** Appends a refused draft to the text in the message box. */
export function takeUp({ id, draft }: Unsent): void {
  const { text, files } = written.peek();
  write({ text: [text, draft.text].filter(Boolean).join("\n\n"), files: [...files, ...draft.files] });
  drop(id);
}

export function drop(id: string): void {
  unsent.value = unsent.peek().filter((one) => one.id !== id);
}
