/**
 * One block of Markdown to HTML, which `clean.ts` then cleans.
 *
 * HTML that a model writes is shown as what it is, text; a few tags without attributes are let through, since tables have
 * no other way to say them, and `<details>`. Images of other servers are not fetched unasked, because their addresses can carry text
 * out of a chat. Formulas are left as their source, in elements that `formulas.ts` fills. Pure.
 */

import { Marked, type Tokens } from "marked";

import { inlines, type DetailsToken, type MathToken } from "./grammar.ts";
import { BAR } from "./math.ts";
import { OWN_IMAGE } from "../../ui/own_image.ts";
import { directionOf } from "./direction.ts";

const HARMLESS_TAG = /^<(?:br\s*\/?|\/?(?:sub|sup|kbd|mark|u))>$/i;

/** The footnotes that a block refers to: the number of each label, and the id of its first reference if it is here. */
export type Notes = ReadonlyMap<string, { readonly number: number; readonly href: string; readonly id: string }>;

const NONE: Notes = new Map();
let notes = NONE;
/** Labels whose first reference in this block has been written, so that each id is written once. */
const written = new Set<string>();

const marked = new Marked(
  inlines((label) => notes.has(label)),
  {
    extensions: [
      { name: "math", renderer: (token) => formulaHtml((token as MathToken).tex, (token as MathToken).isDisplay, "span") },
      { name: "mathBlock", renderer: (token) => formulaHtml((token as MathToken).tex, true, "div") },
      { name: "words", renderer({ raw, tokens = [] }) { return `<p${directed(raw)}>${this.parser.parseInline(tokens)}</p>`; } },
      { name: "note", renderer: ({ label }) => reference(label as string) },
      {
        name: "details",
        renderer(token) {
          const { summary, tokens, isUnfolded } = token as DetailsToken;
          return `<details${isUnfolded ? " open" : ""}><summary>${this.parser.parseInline(summary) || "Details"}</summary>${this.parser.parse(tokens)}</details>`;
        },
      },
    ],
    renderer: {
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
      html({ text }) {
        return HARMLESS_TAG.test(text.trim()) ? text : escaped(text);
      },
      code({ text, lang }: Tokens.Code) {
        return figure(text, /^[\w+#.-]{1,30}/.exec(lang ?? "")?.[0].toLowerCase() ?? "");
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
  },
);

/** `definitions`: link definitions that stand elsewhere in the text; `known`: the footnotes of the text. The HTML is not clean yet. */
export function toHtml(block: string, definitions = "", known: Notes = NONE): string {
  notes = known;
  written.clear();
  try {
    return marked.parse(definitions && block.includes("[") ? `${block}\n\n${definitions}` : block, { async: false }).replaceAll(BAR, "|");
  } catch (wrong) {
    if (!(wrong instanceof RangeError)) throw wrong;
    return `<p>${escaped(block)}</p>`; // nested deeper than the parser's stack
  }
}

/** A formula's source in the element that will show it. */
export function formulaHtml(tex: string, isDisplay: boolean, element: "span" | "div"): string {
  return `<${element} data-math="${isDisplay ? "display" : "inline"}">${escaped(tex.replaceAll(BAR, "|"))}</${element}>`;
}

function reference(label: string): string {
  const note = notes.get(label);
  if (!note) return escaped(`[^${label}]`);
  const id = note.id && !written.has(label) ? ` id="${note.id}"` : "";
  written.add(label);
  return `<sup><a href="${note.href}"${id} data-note aria-label="Footnote ${note.number}">${note.number}</a></sup>`;
}

/** A block without letters inherits its direction, which HTML's `dir="auto"` would not do. */
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
