/** Reads keys and pasted text in the composer and in editors. */

import { limit } from "../state/caps.ts";

/** Safari reports the key that ends a composition only after the composition, and marks this key only by this code. */
const COMPOSING_KEY_CODE = 229;

/** Whether a key press is meant for the page, and not for an input method. */
export function isTyped(event: KeyboardEvent): boolean {
  return !event.isComposing && event.keyCode !== COMPOSING_KEY_CODE;
}

/** Returns a pasted text as a file if it would make the message too long; null if it fits into the message. */
export function plainText(pasted: DataTransfer | null, there: string): File[] | null {
  const text = pasted?.getData("text/plain") ?? "";
  const most = limit("text_max_bytes");
  // A UTF-16 unit takes at most three bytes in UTF-8, so most pastes need no exact count.
  if (3 * (text.length + there.length) <= most || new Blob([there, text]).size <= most) return null;
  return [new File([text], "pasted text.txt", { type: "text/plain" })];
}
