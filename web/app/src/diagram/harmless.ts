/**
 * Prevents the text of a diagram from becoming an event handler, or an address that the browser fetches, while Mermaid
 * draws. Imported before Mermaid.
 *
 * Mermaid cleans its output with DOMPurify, which parses the output first. Chromium applies the Content Security Policy
 * even to this invisible document: it compiles `onerror=…`, refuses the handler and logs an error. So this module
 * changes the text before it is parsed, and prevents Mermaid from setting handlers. The policy
 * (server/threadcast/api/page.py) would refuse these handlers and requests as well.
 */

/**
 * An invisible character (U+2060). Inserted into `onerror` or `url(`, it changes the word but not the look of the text.
 */
const JOINER = "\u2060";

/** Matches the beginning of every word that could be the name of an event handler. */
const HANDLER = /\bon(?=[a-z])/gi;

function harmless(html: string): string {
  return /<[a-z]/i.test(html) ? html.replace(HANDLER, (on) => `${on}${JOINER}`) : html;
}

/** Returns the text without the invisible characters. */
export function plain(text: string): string {
  return text.replaceAll(JOINER, "");
}

/**
 * Returns a diagram's source without styles that fetch: only `url(#…)`, a reference within the picture, is kept. A
 * backslash can hide letters in CSS (https://www.w3.org/TR/css-syntax-3/#escaping), so it is removed from style lines.
 */
export function withoutAddresses(source: string): string {
  const unescaped = source.replace(/^.*\b(?:style|classDef|linkStyle|themeCSS|fontFamily|css)\b.*$/gim, (line) => line.replaceAll("\\", ""));
  return unescaped.replace(/\b(url|src|image|image-set|cross-fade|element|paint)\s*\((?!\s*["']?#)/gi, `$1${JOINER}(`).replace(/@import/gi, `@${JOINER}import`);
}

type Descriptor = PropertyDescriptor & { set(value: string): void };

/** The setters and methods that parse a text as HTML. */
for (const [prototype, name] of [[Element.prototype, "innerHTML"], [Element.prototype, "outerHTML"], [ShadowRoot.prototype, "innerHTML"]] as const) {
  const own = Object.getOwnPropertyDescriptor(prototype, name) as Descriptor;
  Object.defineProperty(prototype, name, { ...own, set(value: string) { own.set.call(this, harmless(String(value))); } });
}
const { parseFromString } = DOMParser.prototype;
DOMParser.prototype.parseFromString = function (text, type) {
  return parseFromString.call(this, harmless(String(text)), type);
};
const { insertAdjacentHTML } = Element.prototype;
Element.prototype.insertAdjacentHTML = function (position, html) {
  insertAdjacentHTML.call(this, position, harmless(String(html)));
};
const { createContextualFragment } = Range.prototype;
Range.prototype.createContextualFragment = function (html) {
  return createContextualFragment.call(this, harmless(String(html)));
};

/**
 * Whether setting an attribute is refused. Mermaid gives the actors of a sequence a handler for a menu, which a picture
 * cannot have.
 */
function isRefused(element: Element, name: string, value: unknown): boolean {
  if (/^on/i.test(name)) return true;
  return /(?:^|:)(?:href|src)$/i.test(name) && element.localName !== "a" && !/^\s*(?:#|data:)/i.test(String(value));
}
const { setAttribute, setAttributeNS } = Element.prototype;
Element.prototype.setAttribute = function (name, value) {
  if (!isRefused(this, name, value)) setAttribute.call(this, name, value);
};
Element.prototype.setAttributeNS = function (space: string | null, name: string, value: string) {
  if (!isRefused(this, name, value)) setAttributeNS.call(this, space, name, value);
};

/** Mermaid loads a picture to learn its size. A picture within a picture is never fetched, so such a diagram is refused. */
Object.defineProperty(HTMLImageElement.prototype, "src", {
  set() {
    throw new Error("It contains a picture from another address, which is not fetched");
  },
});
