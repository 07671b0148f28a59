/** How waiting commands are said to people. Pure. */

import { WITHDRAWN, type Held, type QueuedItem } from "threadcast-client";

const WORDS: Readonly<Record<string, string>> = {
  regenerate: "Answer again",
  remove_message: "Remove a message",
  continue_message: "Continue the answer",
  update_message: "Change a message",
  retry_from_index: "Try again from a message",
};

/** As much of a waiting message as `queue_updated` tells (PROTOCOL §8); what is longer cannot be edited from it. */
const CONTENT_MAX_CHARACTERS = 8_192;

export function wordsOf(item: QueuedItem): string {
  const { command_type: type, preview } = item;
  return type === "user_message" ? preview : [WORDS[type] ?? type, preview].filter((word) => word && word !== type).join(": ");
}

/** Only its text is known here; editing it must not lose what else it holds. */
export function isEditable({ command_type: type, content, preview }: QueuedItem): boolean {
  return type === "user_message" && content !== "" && content.length < CONTENT_MAX_CHARACTERS && !preview.startsWith("[");
}

/** What a person sent that the server has not shown yet; "" for what is no words of theirs. */
export function heldText(held: Held): string {
  if (held.type !== "user_message" && held.type !== WITHDRAWN) return WORDS[held.type] ?? "";
  try {
    const { content, attachments } = JSON.parse(held.body) as { content?: unknown; attachments?: unknown[] };
    return typeof content === "string" && content ? content : `${attachments?.length ?? 1} attached`;
  } catch {
    return "";
  }
}
