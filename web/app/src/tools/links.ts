/** Addresses in a plain text, so that they can be followed. Pure; nothing else of the text is read. */

export type Piece = string | { readonly href: string };

const ADDRESS = /\bhttps?:\/\/[^\s<>"'`]+/g;
/** What ends a sentence or closes a bracket around an address is not part of it. */
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
