/**
 * Splits a growing text into blocks of Markdown, of which only the last blocks can still change. Adding text costs no
 * more than parsing the last block, however long the text is. A block is finished when another block follows and all
 * lines that decide this are complete: half a line may still become something else (`1.` may be a list or `1.5`, and
 * three backticks a fence or a word of code). Pure. A text that arrives in pieces gives the same blocks as the whole
 * text.
 */

import { Lexer } from "marked";

import { blocks, labelsIn } from "./grammar.ts";
import { withoutBegun } from "./math.ts";

export interface Split {
  /** The source of each block, in order. */
  readonly blocks: readonly string[];
  /** Link definitions (`[1]: https://…`) of the whole text, which each block is rendered with. */
  readonly definitions: string;
  /** The labels of the footnotes that each block refers to. */
  readonly labels: readonly (readonly string[])[];
  /** The source of each footnote. */
  readonly notes: readonly string[];
}

export class Splitter {
  private finished = new Parts();
  /** The number of characters in finished blocks. */
  private length = 0;
  private head = "";
  private lineEnd = 0;

  /** Takes the present text. If the text does not continue the previous text, the whole text is split again. */
  take(text: string): Split {
    const source = text.includes("\r") ? text.replace(/\r\n?/g, "\n") : text;
    if (!source.startsWith(this.head)) this.reset();
    this.head = source;
    const lineEnd = source.lastIndexOf("\n") + 1;
    if (lineEnd > this.lineEnd) this.finish(source.slice(this.length, lineEnd));
    this.lineEnd = lineEnd;
    const open = new Parts();
    for (const block of blocksOf(source.slice(this.length))) open.add(block);
    return this.finished.with(open);
  }

  private finish(lines: string): void {
    const found = blocksOf(lines);
    const last = found.at(-1);
    if (!last) return;
    for (const block of found.slice(0, -1)) this.finished.add(block);
    this.length += last.at;
  }

  private reset(): void {
    this.finished = new Parts();
    this.length = this.lineEnd = 0;
  }
}

class Parts {
  private readonly blocks: string[] = [];
  private readonly labels: string[][] = [];
  private readonly definitions: string[] = [];
  private readonly notes: string[] = [];

  add({ type, raw }: Found): void {
    if (type === "def") this.definitions.push(raw);
    else if (type === "note") this.notes.push(raw);
    else {
      this.blocks.push(raw);
      this.labels.push(labelsIn(raw));
    }
  }

  with(more: Parts): Split {
    return {
      blocks: [...this.blocks, ...more.blocks],
      labels: [...this.labels, ...more.labels],
      definitions: [...this.definitions, ...more.definitions].join("\n"),
      notes: [...this.notes, ...more.notes],
    };
  }
}

interface Found {
  readonly type: string;
  readonly raw: string;
  /** Where it begins. */
  readonly at: number;
}

/** Finds blocks only; `render.ts` parses their content. */
function blocksOf(source: string): Found[] {
  const found: Found[] = [];
  let at = 0;
  for (const { type, raw } of tokensOf(source)) {
    if (type !== "space") found.push({ type, raw, at });
    at += raw.length;
  }
  return found;
}

function tokensOf(source: string): { type: string; raw: string }[] {
  try {
    return new Lexer(blocks).blockTokens(source, []);
  } catch (wrong) {
    if (!(wrong instanceof RangeError)) throw wrong;
    return [{ type: "words", raw: source }]; // nested quotes, deeper than the parser's stack
  }
}

/** Returns the parts of a fenced block of code; null for other blocks. */
export function fenceOf(raw: string): { language: string; code: string; isClosed: boolean } | null {
  const opening = /^ {0,3}(`{3,}|~{3,})([^\n]*)(?:\n|$)/.exec(raw);
  const [all, fence, info] = opening ?? [];
  if (all === undefined || fence === undefined || info === undefined || (fence[0] === "`" && info.includes("`"))) return null;
  const body = raw.slice(all.length);
  const closing = new RegExp(`(?:^|\\n) {0,3}${fence[0]}{${fence.length},}[ \\t]*\\n*$`).exec(body);
  return {
    language: (/^\s*([\w+#.-]{1,30})/.exec(info)?.[1] ?? "").toLowerCase(),
    code: closing ? body.slice(0, closing.index) : body.replace(/\n$/, ""),
    isClosed: closing !== null,
  };
}

/**
 * Completes the end of a growing text, so that it does not flicker: a mark without text is held back, bold text and
 * code are closed, and of an unfinished link only the text is shown.
 */
export function settled(raw: string): string {
  let text = withoutBegun(raw.replace(HALF_TAG, "")).replace(HALF_NOTE, "").replace(/(^|\n)[ \t]*(?:[-=*+_#>~]+|`{1,2}|\d{1,3}[.)])[ \t]*$/, "$1");
  text = text.replace(/!\[[^\]\n]*(?:\]\([^)\n]*)?$/, "").replace(/\[([^\]\n]*)(?:\]\([^)\n]*)$/, "$1");
  const lastParagraph = text.slice(text.lastIndexOf("\n\n") + 1);
  const withoutCode = lastParagraph.replace(/`[^`\n]*`/g, "");
  if (withoutCode.includes("`")) return /`$/.test(text) ? text.slice(0, -1) : `${text}\``;
  if (count(withoutCode, /\*\*/g) % 2) return /\*\*\s*$/.test(text) ? text.replace(/\*\*\s*$/, "") : `${text.replace(/\*$|\s+$/, "")}**`;
  return text;
}

/** `<deta`, `<summary`, `</detai`. */
const HALF_TAG = /<\/?(?:d(?:e(?:t(?:a(?:i(?:l(?:s[^>\n]*)?)?)?)?)?)?|s(?:u(?:m(?:m(?:a(?:r(?:y[^>\n]*)?)?)?)?)?)?)?$/i;

/** Matches `[^1`, and at the beginning of a line `[^1]`, which may begin a footnote's text. */
const HALF_NOTE = /\[\^[^\]\s]{0,64}$|(?<=^|\n) {0,3}\[\^[^\]\s]{1,64}\]$/;

function count(text: string, what: RegExp): number {
  return text.match(what)?.length ?? 0;
}
