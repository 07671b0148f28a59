/** Decides the direction of a piece of Markdown: left to right, or right to left. Pure. */

/** Code and addresses have Latin letters in every language, so they are ignored. */
const FOREIGN = /```[^]*?(?:```|$)|`[^`]*`|\]\([^)]*\)|<[^>]*>|\bhttps?:\S+|&#?\w+;/g;

/** The scripts in use that run from right to left (Unicode 16, Bidi_Class R and AL). */
const RIGHT_TO_LEFT =
  /[\p{Script=Hebrew}\p{Script=Arabic}\p{Script=Syriac}\p{Script=Thaana}\p{Script=Nko}\p{Script=Samaritan}\p{Script=Mandaic}\p{Script=Adlam}\p{Script=Hanifi_Rohingya}]/u;

/**
 * Returns the direction of the first letter, as HTML's `dir="auto"` does (rule P2 of the Unicode Bidirectional
 * Algorithm); "" if there are no letters.
 */
export function directionOf(markdown: string): "ltr" | "rtl" | "" {
  const letter = /\p{L}/u.exec(markdown.replace(FOREIGN, " "))?.[0];
  if (!letter) return "";
  return RIGHT_TO_LEFT.test(letter) ? "rtl" : "ltr";
}
