/** Decodes HTML's character references, such as `&nbsp;`, `&auml;` and `&#8364;`, with the browser's own table. */

/** A reference must end with a semicolon (CommonMark §2.5). */
const REFERENCE = /&(?:#\d{1,7}|#x[\da-f]{1,6}|\w+);/gi;

let box: HTMLTextAreaElement | null = null;

/**
 * Decodes a text within a `<textarea>`, whose content never becomes an element
 * (https://html.spec.whatwg.org/#rcdata-state).
 */
export function decoded(text: string): string {
  if (!text.includes("&")) return text;
  const area = (box ??= document.createElement("textarea"));
  return text.replace(REFERENCE, (reference) => {
    area.innerHTML = reference;
    return area.textContent ?? reference;
  });
}
