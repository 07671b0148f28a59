/**
 * A text that grows, as blocks of Markdown of which only the last ones can still change.
 *
 * What one frame adds costs no more than the block it is added to, however long the text is. A block is finished when
 * another follows it and every line that decided so is whole: half a line may yet become something else (`1.` a list or
 * `1.5`, three backticks a fence or a word of code). Pure; the law is that a text in pieces gives the blocks of the whole.
 */

import { Lexer, Marked } from "marked";

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
  /** Of the text, in finished blocks. */
  private length = 0;
  private head = "";
  private lineEnd = 0;

  /** The text as it is now. One that does not begin as the last one did is split anew. */
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

const { defaults } = new Marked(blocks);

/** Without the inline parts, which are read when a block is rendered. */
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
    return new Lexer(defaults).blockTokens(source, []);
  } catch (wrong) {
    if (!(wrong instanceof RangeError)) throw wrong;
    return [{ type: "words", raw: source }]; // quotes within quotes, deeper than the parser's stack
  }
}

/** A fenced block of code taken apart; null for any other block. */
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
 * The end of a text in mid-stream, so that what is begun does not flicker: a mark with nothing behind it is held back,
 * bold and code are closed, of half a link its words are shown.
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

/** `[^1`, and at the beginning of a line `[^1]`, which may become a footnote's text. */
const HALF_NOTE = /\[\^[^\]\s]{0,64}$|(?<=^|\n) {0,3}\[\^[^\]\s]{1,64}\]$/;

function count(text: string, what: RegExp): number {
  return text.match(what)?.length ?? 0;
}
