/**
 * Turns one block of Markdown into a tree, which `draw.ts` draws.
 *
 * HTML in an answer is shown as text. Exceptions are `<details>`, and a few tags without attributes for which tables
 * have no other syntax. Images of other servers are not fetched unasked, because their addresses can carry text out of
 * a chat. Formulas become elements with their source, which `formulas.ts` fills. Pure.
 */

import { Lexer, type Token, type Tokens } from "marked";

import { OWN_IMAGE } from "../../ui/own_image.ts";
import { directionOf } from "./direction.ts";
import { decoded } from "./entities.ts";
import { inlines, type DetailsToken, type MathToken } from "./grammar.ts";
import { BAR } from "./math.ts";
import { branch, type Branch, type Tag, type Tree } from "./tree.ts";

const HARMLESS_TAG = /^<(\/?)(br(?=[\s/>])|sub|sup|kbd|mark|u)\s*\/?>$/i;

/**
 * The footnotes that a block refers to: the number of each label, and the id of its first reference if that is in this
 * block.
 */
export type Notes = ReadonlyMap<string, { readonly number: number; readonly href: string; readonly id: string }>;

const NONE: Notes = new Map();
let notes = NONE;
/** Labels whose first reference in this block has been written, so that each id is written once. */
const written = new Set<string>();

const options = inlines((label) => notes.has(label));

/** `definitions` are the link definitions of the whole text; `known` are its footnotes. */
export function toTrees(block: string, definitions = "", known: Notes = NONE): Tree[] {
  notes = known;
  written.clear();
  try {
    return treesOf(new Lexer(options).lex(definitions && block.includes("[") ? `${block}\n\n${definitions}` : block));
  } catch (wrong) {
    if (!(wrong instanceof RangeError)) throw wrong;
    return [branch("p", {}, [block])]; // nested deeper than the parser's stack
  }
}

/** Returns the element that will show a formula, with the source inside. */
export function formula(tex: string, isDisplay: boolean, tag: "span" | "div"): Branch {
  return branch(tag, { "data-math": isDisplay ? "display" : "inline" }, [withoutBars(tex)]);
}

function withoutBars(text: string): string {
  return text.replaceAll(BAR, "|");
}

function treesOf(tokens: readonly Token[]): Tree[] {
  const row = new Row();
  for (const token of tokens) {
    if (token.type === "html") row.addHtml(token.text as string);
    else row.add(...treesOfToken(token as Tokens.Generic));
  }
  return row.close();
}

/**
 * Collects elements and texts. Content after an open allowed tag, such as `<sub>`, is added inside the tag's element.
 */
class Row {
  private readonly open: { tag: Tag | null; children: Tree[] }[] = [{ tag: null, children: [] }];

  /** Joins adjacent texts, so that a text grows in place. */
  add(...trees: Tree[]): void {
    const { children } = this.open.at(-1) as { children: Tree[] };
    for (const tree of trees) {
      const last = children.at(-1);
      if (typeof tree === "string" && typeof last === "string") children[children.length - 1] = last + tree;
      else children.push(tree);
    }
  }

  addHtml(text: string): void {
    const [, isEnd, name] = HARMLESS_TAG.exec(text.trim()) ?? [];
    const tag = name?.toLowerCase() as Tag | undefined;
    if (!tag) this.add(withoutBars(text));
    else if (tag === "br") this.add(branch("br"));
    else if (!isEnd) this.open.push({ tag, children: [] });
    else if (this.open.some((one) => one.tag === tag)) while (this.end() !== tag);
  }

  close(): Tree[] {
    while (this.open.length > 1) this.end();
    return this.open[0]?.children ?? [];
  }

  private end(): Tag | null {
    const { tag, children } = this.open.pop() as { tag: Tag | null; children: Tree[] };
    if (tag) this.add(branch(tag, {}, children));
    return tag;
  }
}

function treesOfToken(token: Tokens.Generic): Tree[] {
  const tokens = token.tokens ?? [];
  switch (token.type) {
    case "space":
    case "def":
      return [];
    case "hr":
    case "br":
      return [branch(token.type)];
    case "heading":
      return [branch(`h${token.depth as 1 | 2 | 3 | 4 | 5 | 6}`, directed(token.raw), treesOf(tokens))];
    case "paragraph":
    case "words":
      return [branch("p", directed(token.raw), treesOf(tokens))];
    case "blockquote":
      return [branch("blockquote", directed(token.raw), treesOf(tokens))];
    case "list":
      return [list(token as Tokens.List)];
    case "checkbox":
      return [branch("input", { ...(token.checked && { checked: "" }), type: "checkbox", disabled: "", "aria-label": "task" }), " "];
    case "code":
      return [figure(token.text as string, /^[\w+#.-]{1,30}/.exec((token.lang as string | undefined) ?? "")?.[0].toLowerCase() ?? "")];
    case "table":
      return [table(token as Tokens.Table)];
    case "details":
      return [details(token as DetailsToken)];
    case "math":
      return [formula((token as MathToken).tex, (token as MathToken).isDisplay, "span")];
    case "mathBlock":
      return [formula((token as MathToken).tex, true, "div")];
    case "note":
      return [reference(token.label as string)];
    case "strong":
    case "em":
    case "del":
      return [branch(token.type, {}, treesOf(tokens))];
    case "codespan":
      return [branch("code", { dir: "ltr" }, [withoutBars(token.text as string)])];
    case "link":
      return link(token as Tokens.Link);
    case "image":
      return [image(token as Tokens.Image)];
    case "text":
      return token.tokens ? treesOf(tokens) : [withoutBars(decoded(token.text as string))];
    default:
      return [withoutBars((token.text as string | undefined) ?? token.raw)];
  }
}

function list({ ordered, start, items, raw }: Tokens.List): Tree {
  const from = ordered && start !== 1 ? { start: String(start) } : {};
  return branch(ordered ? "ol" : "ul", { ...from, ...directed(raw) }, items.map((item) => branch("li", directed(item.raw), treesOf(item.tokens))));
}

function table({ header, rows, raw }: Tokens.Table): Tree {
  const row = (tag: "th" | "td", cells: readonly Tokens.TableCell[]) =>
    branch("tr", {}, cells.map(({ text, tokens, align }) => branch(tag, { ...directed(text), ...(align && { align }) }, treesOf(tokens))));
  const body = branch("tbody", {}, rows.map((cells) => row("td", cells)));
  return branch("div", { tabindex: "0", ...directed(raw) }, [branch("table", {}, [branch("thead", {}, [row("th", header)]), body])]);
}

function details({ summary, tokens, isUnfolded }: DetailsToken): Tree {
  const said = treesOf(summary as Token[]);
  return branch("details", isUnfolded ? { open: "" } : {}, [branch("summary", {}, said.length ? said : ["Details"]), ...treesOf(tokens as Token[])]);
}

function link({ href, title, text, tokens, autolink }: Tokens.Link): Tree[] {
  const said = autolink ? [text] : treesOf(tokens);
  let address: string;
  try {
    address = encodeURI(href).replace(/%25/g, "%");
  } catch {
    return said; // an incomplete surrogate pair
  }
  const leads = autolink ? address : decoded(address);
  return [branch("a", { href: leads, ...(title && { title: decoded(title) }), target: "_blank", rel: "noopener noreferrer nofollow" }, said)];
}

function image({ href, text }: Tokens.Image): Tree {
  const said = withoutBars(text);
  if (OWN_IMAGE.test(href)) return branch("img", { src: href, alt: said, loading: "lazy" });
  if (!/^https:\/\//i.test(href)) return said || href;
  const where = URL.canParse(href) ? new URL(href).host : href;
  return branch("button", { type: "button", "data-image": href, title: href }, [`Show image from ${where}${said ? ": " : ""}`, ...(said ? [branch("span", {}, [said])] : [])]);
}

function reference(label: string): Tree {
  const note = notes.get(label);
  if (!note) return `[^${label}]`;
  const id = note.id && !written.has(label) ? { id: note.id } : {};
  written.add(label);
  return branch("sup", {}, [branch("a", { href: note.href, ...id, "data-note": "", "aria-label": `Footnote ${note.number}` }, [String(note.number)])]);
}

/** A block without letters inherits its direction, which HTML's `dir="auto"` would not do. */
function directed(raw: string): { dir?: "ltr" | "rtl" } {
  const dir = directionOf(raw);
  return dir ? { dir } : {};
}

/** Returns code with its language and a copy button. `markdown.tsx` draws the same elements for growing code. */
function figure(code: string, language: string): Tree {
  return branch("figure", { dir: "ltr" }, [
    branch("figcaption", {}, [branch("span", {}, [language || "text"]), branch("button", { type: "button", "data-copy": "code" }, ["Copy"])]),
    branch("pre", { tabindex: "0" }, [branch("code", language ? { class: `language-${language}` } : {}, [`${code}\n`])]),
  ]);
}
