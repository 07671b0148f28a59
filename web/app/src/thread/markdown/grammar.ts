/**
 * Parses the page's additions to GitHub's Markdown: formulas, `<details>` and footnotes, as extensions of
 * marked's lexer. Pure.
 *
 * `split.ts` uses `blocks` to split a growing text into blocks; `render.ts` also uses `inlines` to parse one whole
 * block. Each of these blocks begins at a line that starts with the block's marker. Later lines do not change this
 * decision, so a text that arrives in pieces is split like the whole text.
 */

import { Tokenizer, type MarkedOptions, type TokenizerExtension, type Tokens } from "marked";

import { covered, formulaAt, mathBlockAt, withBars } from "./math.ts";

/** The tokens of the extensions, for `render.ts`. */
export interface MathToken extends Tokens.Generic {
  tex: string;
  isDisplay: boolean;
}

export interface DetailsToken extends Tokens.Generic {
  summary: Tokens.Generic[];
  tokens: Tokens.Generic[];
  isUnfolded: boolean;
}

/** Matches an empty line, or a line break before one of the blocks below; the block's marker is captured. */
const ENDING = /\n(?:[ \t]*\n|(?= {0,3}(\$\$|\\\[|<details\b[^>\n]*>|\[\^[^\]\s]{1,64}\]:)))/i;

/** Returns the index of the next of these blocks within the first paragraph of `src`. */
function nextBlock(src: string): number | undefined {
  const found = ENDING.exec(src);
  return found?.[1] === undefined ? undefined : found.index + 1;
}

/** With `isWhole` a formula without an end is text; otherwise the formula reaches to the end of the present text. */
const mathBlock = (isWhole: boolean): TokenizerExtension => ({
  name: "mathBlock",
  level: "block",
  start: nextBlock,
  tokenizer(src) {
    const found = mathBlockAt(src);
    if (found && (found.isClosed || !isWhole)) return { type: "mathBlock", raw: found.raw, tex: found.tex, isDisplay: true };
    if (!/^ {0,3}(?:\$\$|\\\[)/.test(src)) return undefined;
    // The text is a separate paragraph and no formula. The token has its own type, because marked would join the next
    // paragraph to it.
    const text = src.slice(0, nextBlock(src) ?? src.length).replace(/\n[ \t]*\n[\s\S]*/, "\n");
    return { type: "words", raw: text, tokens: this.lexer.inline(text.trim()) };
  },
});

/** Deeper `<details>` are text, because the parser calls itself for each level. */
export const DETAILS_MAX_DEPTH = 8;

const details = (isWhole: boolean): TokenizerExtension => {
  let depth = 0;
  return {
    name: "details",
    level: "block",
    tokenizer(src) {
      const parts = depth < DETAILS_MAX_DEPTH ? detailsAt(src) : null;
      if (!parts || !isWhole) return parts ? { type: "details", raw: parts.raw } : undefined;
      const { raw, isUnfolded } = parts;
      depth += 1;
      try {
        return { type: "details", raw, isUnfolded, summary: this.lexer.inline(parts.summary, []), tokens: this.lexer.blockTokens(parts.body, []) };
      } finally {
        depth -= 1;
      }
    },
  };
};

export interface DetailsParts {
  readonly raw: string;
  readonly summary: string;
  readonly body: string;
  readonly isUnfolded: boolean;
  readonly isClosed: boolean;
}

const DETAILS = /^ {0,3}<details\b([^>\n]*)>/i;

/**
 * Matches `<details>` at the beginning of `src`, including nested elements. Without an end tag the element reaches to
 * the end of the text.
 */
export function detailsAt(src: string): DetailsParts | null {
  const opening = DETAILS.exec(src);
  if (!opening) return null;
  const tag = /<(\/?)details\b[^>\n]*>/gi;
  // Tags in code are text. Each bracket in code is replaced by one letter, so that all indices stay valid.
  const seen = src.replace(/(?:^|\n) {0,3}(`{3,}|~{3,})[\s\S]*?(?:\n {0,3}\1[`~]*[ \t]*(?=\n|$)|$)|(`+)(?!`)[^`\n]*\2/g, (code) => code.replace(/[<>]/g, "a"));
  let depth = 0;
  let end: RegExpExecArray | null = null;
  while ((end = tag.exec(seen))) {
    depth += end[1] ? -1 : 1;
    if (depth === 0) break;
  }
  const inner = src.slice(opening[0].length, end?.index ?? src.length);
  const summary = /^\s*<summary\b[^>\n]*>([\s\S]*?)(?:<\/summary>|$)/i.exec(inner);
  const after = end ? (/^[ \t]*\n?/.exec(src.slice(tag.lastIndex))?.[0].length ?? 0) : 0;
  return {
    raw: end ? src.slice(0, tag.lastIndex + after) : src,
    summary: (summary?.[1] ?? "").trim().replace(/<\/?[a-z][^>]*>/gi, ""),
    body: inner.slice(summary?.[0].length ?? 0).replace(/^[ \t]*\n/, ""),
    isUnfolded: /\sopen\b/i.test(opening[1] as string),
    isClosed: end !== null,
  };
}

const NOTE = /^ {0,3}\[\^([^\]\s]{1,64})\]:[ \t]*([^\n]*(?:\n|$))/;

/** A line that continues the paragraph before it. */
const CONTINUED = /^(?!\s*(?:$|#{1,6}\s|>|`{3}|~{3}|[-*+]\s|\d{1,9}[.)]\s|\$\$|\\\[|<|\[\^|\|))[^\n]*(?:\n|$)/;

/**
 * Matches a footnote's text: its first line, lines that continue it, and indented lines below, also after an empty
 * line.
 */
const note: TokenizerExtension = {
  name: "note",
  level: "block",
  tokenizer(src) {
    const first = NOTE.exec(src);
    if (!first || !this.lexer.state.top) return undefined;
    let raw = first[0];
    for (let isParagraph = true; raw.length < src.length; ) {
      const rest = src.slice(raw.length);
      const more: RegExpExecArray | null = /^(?:[ \t]*\n)*(?: {2,}|\t)[^\n]*\S[^\n]*(?:\n|$)/.exec(rest) ?? (isParagraph ? CONTINUED.exec(rest) : null);
      if (!more?.[0]) break;
      isParagraph &&= !/^[ \t]*\n/.test(more[0]);
      raw += more[0];
    }
    return { type: "note", raw, label: first[1] as string };
  },
};

/** Returns a footnote's label and its text, which is Markdown. */
export function noteParts(raw: string): { label: string; text: string } {
  const [all = "", label = "", first = ""] = NOTE.exec(raw) ?? [];
  return { label, text: (first + raw.slice(all.length).replace(/^(?: {1,4}|\t)/gm, "")).trimEnd() };
}

const math: TokenizerExtension = {
  name: "math",
  level: "inline",
  start: (src) => positive(src.search(/\$|\\[([]/)),
  tokenizer(src, tokens) {
    const found = formulaAt(src, tokens.at(-1)?.raw.at(-1));
    return found ? { type: "math", ...found } : undefined;
  },
};

/** `isNote` returns whether there is a footnote with a label. */
const reference = (isNote: (label: string) => boolean): TokenizerExtension => ({
  name: "note",
  level: "inline",
  start: (src) => positive(src.indexOf("[^")),
  tokenizer(src) {
    const found = REFERENCE.exec(src);
    return found && isNote(found[1] as string) ? { type: "note", raw: found[0], label: found[1] as string } : undefined;
  },
});

const REFERENCE = /^\[\^([^\]\s]{1,64})\](?!\()/;

/** Returns the labels of the footnotes that a block refers to, in order. */
export function labelsIn(block: string): string[] {
  if (!block.includes("[^")) return [];
  const words = block.replace(/(`+)[\s\S]*?\1/g, "");
  return [...words.matchAll(/\[\^([^\]\s]{1,64})\](?![(:])/g)].map((found) => found[1] as string);
}

function positive(at: number): number | undefined {
  return at < 0 ? undefined : at;
}

class OwnTokenizer extends Tokenizer {
  /** A `|` within a formula does not separate cells, and a table ends where another block begins. */
  override table(src: string): Tokens.Table | undefined {
    const own = src.slice(0, nextBlock(src) ?? src.length);
    const found = super.table(withBars(own));
    // The replacement of a bar is one character too, so the table ends at the same index.
    return found && { ...found, raw: own.slice(0, found.raw.length) };
  }

  /** An underline does not turn a paragraph into a heading if one of these blocks has ended the paragraph. */
  override lheading(src: string): Tokens.Heading | undefined {
    const at = nextBlock(src);
    return at === undefined || /\n {0,3}(?:=+|-+)[ \t]*\n/.test(src.slice(0, at)) ? super.lheading(src) : undefined;
  }
}

/**
 * Returns the options of marked's `Lexer`. marked's class `Marked` would build the same options, but would also include
 * the code that writes HTML.
 */
function optionsOf(block: readonly TokenizerExtension[], inline: readonly TokenizerExtension[], hooks?: MarkedOptions["hooks"]): MarkedOptions {
  const tokenizers = (of: readonly TokenizerExtension[]) => of.map((each) => each.tokenizer);
  const starts = (of: readonly TokenizerExtension[]) => of.flatMap((each) => each.start ?? []);
  return {
    gfm: true,
    tokenizer: new OwnTokenizer(),
    extensions: {
      ...{ renderers: {}, childTokens: {} },
      ...{ block: tokenizers(block), startBlock: starts(block) },
      ...{ inline: tokenizers(inline), startInline: starts(inline) },
    },
    hooks,
  };
}

/** The lexer that splits a text into blocks. */
export const blocks: MarkedOptions = optionsOf([note, details(false), mathBlock(false)], []);

/** Returns the options of the lexer that parses one whole block. */
export function inlines(isNote: (label: string) => boolean): MarkedOptions {
  return optionsOf([details(true), mathBlock(true)], [reference(isNote), math], { emStrongMask: covered } as MarkedOptions["hooks"]);
}
