/** Finds addresses in a plain text, for links. Pure. */

export type Piece = string | { readonly href: string };

const ADDRESS = /\bhttps?:\/\/[^\s<>"'`]+/g;
/** The end of a sentence and closing brackets are not part of an address. */
const AFTER = /[.,;:!?)\]}]+$/;

export function pieces(text: string): Piece[] {
  const found: Piece[] = [];
  let end = 0;
  for (const match of text.matchAll(ADDRESS)) {
    const href = match[0].replace(AFTER, "");
    if (!URL.canParse(href)) continue;
    if (match.index > end) found.push(text.slice(end, match.index));
    found.push({ href });
    end = match.index + href.length;
  }
  if (end < text.length) found.push(text.slice(end));
  return found;
}
