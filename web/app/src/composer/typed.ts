/** Reads keys and pasted text in the composer and in editors. */

import { limit } from "../state/caps.ts";

/** Safari reports the key that ends a composition only after the composition, and marks it only by this code. */
const COMPOSING_KEY_CODE = 229;

/** Whether the key is meant for the page, and not for an input method. */
export function isTyped(event: KeyboardEvent): boolean {
  return !event.isComposing && event.keyCode !== COMPOSING_KEY_CODE;
}

/** A pasted text as a file, if it would make the message too long; null when the text fits into the message. */
export function plainText(pasted: DataTransfer | null, there: string): File[] | null {
  const text = pasted?.getData("text/plain") ?? "";
  const most = limit("text_max_bytes");
  // No character has more than three bytes for each of its units, so most pastes need no counting.
  if (3 * (text.length + there.length) <= most || new Blob([there, text]).size <= most) return null;
  return [new File([text], "pasted text.txt", { type: "text/plain" })];
}
