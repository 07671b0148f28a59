/**
 * A text that grows, as blocks of Markdown of which only the last ones can still change.
 *
 * What one frame adds costs no more than the block it is added to, however long the text is. A block is finished when
 * another follows it and every line that decided so is whole: half a line may yet become something else (`1.` a list or
 * `1.5`, three backticks a fence or a word of code). Pure; the law is that a text in pieces gives the blocks of the whole.
 */

import { Lexer } from "marked";

export interface Split {
  /** The source of each block, in order. */
  readonly blocks: readonly string[];
  /** Link definitions (`[1]: https://…`) of the whole text, which each block is rendered with. */
  readonly definitions: string;
}

export class Splitter {
  private finished: string[] = [];
  private definitions: string[] = [];
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
    const open = blocksOf(source.slice(this.length));
    return {
      blocks: [...this.finished, ...open.filter((block) => block.type !== "def").map((block) => block.raw)],
      definitions: [...this.definitions, ...open.filter((block) => block.type === "def").map((block) => block.raw)].join("\n"),
    };
  }

  private finish(lines: string): void {
    const blocks = blocksOf(lines);
    const last = blocks.at(-1);
    if (!last) return;
    for (const block of blocks.slice(0, -1)) {
      (block.type === "def" ? this.definitions : this.finished).push(block.raw);
    }
    this.length += last.at;
  }

  private reset(): void {
    this.finished = [];
    this.definitions = [];
    this.length = this.lineEnd = 0;
  }
}

interface Found {
  readonly type: string;
  readonly raw: string;
  /** Where it begins. */
  readonly at: number;
}

/** Without the inline parts, which are read when a block is rendered. */
function blocksOf(source: string): Found[] {
  const found: Found[] = [];
  let at = 0;
  for (const { type, raw } of new Lexer({ gfm: true }).blockTokens(source, [])) {
    if (type !== "space") found.push({ type, raw, at });
    at += raw.length;
  }
  return found;
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
  let text = raw.replace(/(^|\n)[ \t]*(?:[-=*+_#>~]+|`{1,2}|\d{1,3}[.)])[ \t]*$/, "$1");
  text = text.replace(/!\[[^\]\n]*(?:\]\([^)\n]*)?$/, "").replace(/\[([^\]\n]*)(?:\]\([^)\n]*)$/, "$1");
  const lastParagraph = text.slice(text.lastIndexOf("\n\n") + 1);
  const withoutCode = lastParagraph.replace(/`[^`\n]*`/g, "");
  if (withoutCode.includes("`")) return /`$/.test(text) ? text.slice(0, -1) : `${text}\``;
  if (count(withoutCode, /\*\*/g) % 2) return /\*\*\s*$/.test(text) ? text.replace(/\*\*\s*$/, "") : `${text.replace(/\*$|\s+$/, "")}**`;
  return text;
}

function count(text: string, what: RegExp): number {
  return text.match(what)?.length ?? 0;
}
