/** What keys and the clipboard bring into a place where people write. */

import { limit } from "../state/caps.ts";

/** Safari tells of the key that ends a composition after the composition, with this code alone. */
const COMPOSING_KEY_CODE = 229;

/** A key for us: not one by which somebody chooses letters of an input method. */
export function isTyped(event: KeyboardEvent): boolean {
  return !event.isComposing && event.keyCode !== COMPOSING_KEY_CODE;
}

/** A pasted text that would make the message longer than one may be, as a file; null when it goes into the message. */
export function plainText(pasted: DataTransfer | null, there: string): File[] | null {
  const text = pasted?.getData("text/plain") ?? "";
  const most = limit("text_max_bytes");
  // No character has more than three bytes for each of its units, so most pastes need no counting.
  if (3 * (text.length + there.length) <= most || new Blob([there, text]).size <= most) return null;
  return [new File([text], "pasted text.txt", { type: "text/plain" })];
}
