/**
 * One block of Markdown to HTML, which `clean.ts` then cleans.
 *
 * HTML that a model writes is shown as what it is, text; a few tags without attributes are let through, since tables have
 * no other way to say them. Images of other servers are not fetched unasked: an address is all it takes to carry words
 * out of a chat. Pure.
 */

import { Marked, type Tokens } from "marked";

import { OWN_IMAGE } from "../../ui/own_image.ts";
import { directionOf } from "./direction.ts";

const HARMLESS_TAG = /^<(?:br\s*\/?|\/?(?:sub|sup|kbd|mark|u))>$/i;

const marked = new Marked({
  gfm: true,
  renderer: {
    html({ text }) {
      return HARMLESS_TAG.test(text.trim()) ? text : escaped(text);
    },
    code({ text, lang }: Tokens.Code) {
      return figure(text, /^[\w+#.-]{1,30}/.exec(lang ?? "")?.[0].toLowerCase() ?? "");
    },
    paragraph({ tokens, raw }) {
      return `<p${directed(raw)}>${this.parser.parseInline(tokens)}</p>\n`;
    },
    heading({ tokens, depth, raw }) {
      return `<h${depth}${directed(raw)}>${this.parser.parseInline(tokens)}</h${depth}>\n`;
    },
    codespan({ text }) {
      return `<code dir="ltr">${escaped(text)}</code>`;
    },
    blockquote({ tokens, raw }) {
      return `<blockquote${directed(raw)}>\n${this.parser.parse(tokens)}</blockquote>\n`;
    },
    list({ ordered, start, items, raw }) {
      const tag = ordered ? "ol" : "ul";
      const from = ordered && start !== 1 ? ` start="${start}"` : "";
      return `<${tag}${from}${directed(raw)}>\n${items.map((item) => this.listitem(item)).join("")}</${tag}>\n`;
    },
    listitem(item) {
      return `<li${directed(item.raw)}>${this.parser.parse(item.tokens)}</li>\n`;
    },
    tablecell({ text, tokens, header, align }) {
      const tag = header ? "th" : "td";
      return `<${tag}${directed(text)}${align ? ` align="${align}"` : ""}>${this.parser.parseInline(tokens)}</${tag}>\n`;
    },
    image({ href, text }) {
      if (OWN_IMAGE.test(href)) return `<img src="${escaped(href)}" alt="${escaped(text)}" loading="lazy">`;
      if (!/^https:\/\//i.test(href)) return escaped(text || href);
      const where = URL.canParse(href) ? new URL(href).host : href;
      return `<button type="button" data-image="${escaped(href)}" title="${escaped(href)}">Show image from ${escaped(where)}${text ? `: <span>${escaped(text)}</span>` : ""}</button>`;
    },
    table(this, token) {
      const row = (cells: Tokens.TableCell[]) => `<tr>${cells.map((cell) => this.tablecell(cell)).join("")}</tr>`;
      return `<div tabindex="0"${directed(token.raw)}><table><thead>${row(token.header)}</thead><tbody>${token.rows.map(row).join("")}</tbody></table></div>`;
    },
  },
});

/** `definitions`: link definitions that stand elsewhere in the text. Not clean yet. */
export function toHtml(block: string, definitions = ""): string {
  return marked.parse(definitions && block.includes("[") ? `${block}\n\n${definitions}` : block, { async: false });
}

/** A block without letters goes the way of what it stands in, which HTML's `dir="auto"` would not do. */
function directed(raw: string): string {
  const direction = directionOf(raw);
  return direction ? ` dir="${direction}"` : "";
}

/** Code with its language and a button that copies it; `markdown.tsx` draws the same for code that grows. */
function figure(code: string, language: string): string {
  const name = language ? ` class="language-${escaped(language)}"` : "";
  return (
    `<figure dir="ltr"><figcaption><span>${escaped(language || "text")}</span>` +
    `<button type="button" data-copy="code">Copy</button></figcaption>` +
    `<pre tabindex="0"><code${name}>${escaped(code)}\n</code></pre></figure>`
  );
}

const ENTITIES: Record<string, string> = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;" };

export function escaped(text: string): string {
  return text.replace(/[&<>"']/g, (sign) => ENTITIES[sign] as string);
}
