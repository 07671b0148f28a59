/** Describes waiting commands in words. Pure. */

import { WITHDRAWN, type Held, type QueuedItem } from "threadcast-client";

const WORDS: Readonly<Record<string, string>> = {
  regenerate: "Answer again",
  remove_message: "Remove a message",
  continue_message: "Continue the answer",
  update_message: "Change a message",
  retry_from_index: "Try again from a message",
};

/** The maximum characters of a waiting message in `queue_updated` (PROTOCOL §8); a longer message cannot be edited. */
const CONTENT_MAX_CHARACTERS = 8_192;

export function wordsOf(item: QueuedItem): string {
  const { command_type: type, preview } = item;
  return type === "user_message" ? preview : [WORDS[type] ?? type, preview].filter((word) => word && word !== type).join(": ");
}

/**
 * Whether a waiting message can be edited. Only its text is known here, and editing must not lose attachments or cut
 * text.
 */
export function isEditable({ command_type: type, content, preview }: QueuedItem): boolean {
  return type === "user_message" && content !== "" && content.length < CONTENT_MAX_CHARACTERS && !preview.startsWith("[");
}

/** Returns the text of a command that the server has not shown yet; "" for a command that is not shown to people. */
export function heldText(held: Held): string {
  if (held.type !== "user_message" && held.type !== WITHDRAWN) return WORDS[held.type] ?? "";
  try {
    const { content, attachments } = JSON.parse(held.body) as { content?: unknown; attachments?: unknown[] };
    return typeof content === "string" && content ? content : `${attachments?.length ?? 1} attached`;
  } catch {
    return "";
  }
}
