/** HTML that came from a model, through DOMPurify: only tags and attributes that `render.ts` writes are left. */

import DOMPurify from "dompurify";

const TAGS =
  "a blockquote br button code del details div em figcaption figure h1 h2 h3 h4 h5 h6 hr img input kbd li mark ol p pre span strong sub summary sup table tbody td th thead tr u ul".split(
    " ",
  );

/** Those that lead somewhere are held against ADDRESS, the others are words. */
const ADDRESSES = ["data-image", "href", "src"];
const WORDS = "align alt aria-label checked class data-copy data-math data-note dir disabled id loading open rel start tabindex target title type".split(" ");

/** Elsewhere nothing leads: not to scripts, not to data. An image may be data; `render.ts` says which. */
const ADDRESS = /^(?:https?:|mailto:|tel:|\/(?!\/)|#|data:image\/(?:png|jpe?g|webp|gif);base64,)/i;

DOMPurify.addHook("afterSanitizeAttributes", (node) => {
  if (node.tagName === "A" && !node.hasAttribute("data-note")) {
    if (/^data:/i.test(node.getAttribute("href") ?? "")) node.removeAttribute("href");
    node.setAttribute("target", "_blank");
    node.setAttribute("rel", "noopener noreferrer nofollow");
  }
  // An input is a task's mark and nothing that could be written into.
  if (node.tagName === "INPUT") {
    node.setAttribute("type", "checkbox");
    node.setAttribute("disabled", "");
    node.setAttribute("aria-label", "task");
  }
});

export function clean(html: string): string {
  return DOMPurify.sanitize(html, {
    ALLOWED_TAGS: TAGS,
    ALLOWED_ATTR: [...WORDS, ...ADDRESSES],
    ADD_URI_SAFE_ATTR: WORDS,
    ALLOWED_URI_REGEXP: ADDRESS,
    ALLOW_DATA_ATTR: false,
    ALLOW_ARIA_ATTR: false,
  });
}
