/** Takes back sent messages that the server has not shown yet. */

import { WITHDRAWN, type Chat, type Held } from "threadcast-client";

import { notify, notifyOf } from "../state/session.ts";
import { putBack, sentDrafts } from "../state/writing.ts";
import { draftOf } from "./held_draft.ts";

/**
 * Takes back a message that the server has not shown; with `isToEdit` its draft returns to the message box at once. If
 * the message turns out to have taken effect already, a notice says so.
 */
export async function withdraw(opened: Chat, held: Held, { isToEdit = false } = {}): Promise<void> {
  const draft = sentDrafts.get(held.requestId) ?? draftOf(held);
  try {
    const outcome = opened.withdraw(held.requestId);
    if (isToEdit) putBack(opened.id, draft, "taken back");
    if ((await outcome) === "sent") notify(`This message could not be taken back, because it was already answered: “${shorten(draft.text)}”`);
  } catch (wrong) {
    notifyOf(wrong);
  }
}

function shorten(text: string): string {
  return text.length > 60 ? `${text.slice(0, 59)}…` : text;
}

/** Whether a message is being taken back. Such a message is listed until the server has answered. */
export function isWithdrawn({ type }: Held): boolean {
  return type === WITHDRAWN;
}
