/**
 * Finds formulas in Markdown: `$…$`, `$$…$$`, `\(…\)` and `\[…\]`. Pure.
 *
 * A dollar sign is more often money or a shell variable than a formula. The rules for a single dollar are Pandoc's (no
 * space behind the first dollar, no space before the last, no digit after the last,
 * https://pandoc.org/MANUAL.html#math) and the stricter rules below, so that "$5 and $6", `$HOME/$USER` and `${a}${b}`
 * stay text.
 */

export interface Formula {
  /** The source with its delimiters. */
  readonly raw: string;
  readonly tex: string;
  readonly isDisplay: boolean;
}

/** Longer formulas are shown as text: no formula that people read has so many characters. */
const BLOCK_MAX_CHARACTERS = 5_000;
const INLINE_MAX_CHARACTERS = 1_000;

const EMPTY_LINE = /\n[ \t]*\n/;

/** Signs that are common in formulas and rare between two amounts of money. */
const MATH_SIGN = /[\\^_={}<>+*]/;

/** Letters that may follow an inline formula: "the $n$th term", "two $x$s". */
const SUFFIX = /^(?:th|st|nd|rd|s|ary|fold)\b/;

/** Finds a formula at the beginning of `src`. `before` is the character before `src`, or "". */
export function formulaAt(src: string, before = ""): Formula | null {
  if (src[0] === "\\") return bracketed(src);
  if (src.startsWith("$$")) return doubled(src);
  return src[0] === "$" ? single(src, before) : null;
}

function bracketed(src: string): Formula | null {
  const isDisplay = src[1] === "[";
  if (!isDisplay && src[1] !== "(") return null;
  const near = src.slice(0, (isDisplay ? BLOCK_MAX_CHARACTERS : INLINE_MAX_CHARACTERS) + 4);
  let end = near.indexOf(isDisplay ? "\\]" : "\\)", 3);
  while (isDisplay && end >= 0 && src[end + 2] === "(") end = near.indexOf("\\]", end + 1);
  const tex = near.slice(2, Math.max(2, end));
  if (!tex.trim() || EMPTY_LINE.test(tex)) return null;
  return { raw: src.slice(0, end + 2), tex: tex.trim(), isDisplay };
}

function doubled(src: string): Formula | null {
  const found = /^\$\$((?:[^$\\]|\\[\s\S]){1,5000}?)\$\$(?!\$)/.exec(src);
  const tex = found?.[1];
  if (!found || !tex?.trim() || EMPTY_LINE.test(tex) || isPriceRange(tex)) return null;
  return { raw: found[0], tex: tex.trim(), isDisplay: true };
}

/** Whether a formula is really a price range, such as "$$ to $$$" for a restaurant. */
function isPriceRange(tex: string): boolean {
  return /^\s|\s$/.test(tex) && /^[\s\w,.;:–—-]*$/.test(tex) && !/\d/.test(tex) && !/^\s*\w\s*$/.test(tex);
}

function single(src: string, before: string): Formula | null {
  const found = /^\$((?:[^$\\`]|\\[\s\S]){1,1000}?)\$/.exec(src);
  const tex = found?.[1];
  if (!found || tex === undefined || !mayOpen(tex, before)) return null;
  const after = src.slice(found[0].length);
  if (/\s$/.test(tex) || tex === "|" || EMPTY_LINE.test(tex) || /^[\d$]/.test(after)) return null;
  if (/^[A-Za-z_]/.test(after) && !SUFFIX.test(after)) return null;
  if (/^[({]/.test(tex) && after[0] === tex[0]) return null; // `${a}${b}`, `$(a)$(b)`
  if (/^\d/.test(tex) && /\s/.test(tex) && !MATH_SIGN.test(tex) && !/^[\d\s.,()/:-]+$/.test(tex)) return null;
  return { raw: found[0], tex, isDisplay: false };
}

/** Whether the text after a single dollar sign can begin a formula. */
function mayOpen(tex: string, before: string): boolean {
  return !/[\w$\\]/.test(before) && !/^[\s)\]},.;:!?%"'’”]/.test(tex);
}

export interface MathBlock {
  readonly raw: string;
  readonly tex: string;
  readonly isClosed: boolean;
}

/**
 * Finds a formula that fills whole lines at the beginning of `src`, which begins with `$$` or `\[`. If the delimiter is
 * alone on its line, the formula may contain empty lines. Returns null if there is no formula; a formula without an end
 * has `isClosed` false. Later lines do not change the result, as `split.ts` requires.
 */
export function mathBlockAt(src: string): MathBlock | null {
  const opening = /^ {0,3}(\$\$|\\\[)([ \t]*\n)?/.exec(src);
  if (!opening) return null;
  const close = opening[1] === "$$" ? "$$" : "\\]";
  const begin = src.indexOf(opening[1] as string) + 2;
  const limit = opening[2] ? begin + BLOCK_MAX_CHARACTERS : begin + emptyLine(src.slice(begin, begin + BLOCK_MAX_CHARACTERS));
  const end = src.slice(0, limit + 2).indexOf(close, begin);
  if (end < 0) return src.length < limit ? { raw: src, tex: src.slice(begin), isClosed: false } : null;
  const after = /^([.,;:]?)[ \t]*(?:\n|$)/.exec(src.slice(end + 2, end + 100));
  const tex = src.slice(begin, end).trim();
  if (!after || !tex) return null;
  return { raw: src.slice(0, end + 2 + after[0].length), tex: tex + after[1], isClosed: true };
}

function emptyLine(text: string): number {
  const at = text.search(EMPTY_LINE);
  return at < 0 ? BLOCK_MAX_CHARACTERS : at;
}

interface Step {
  readonly raw: string;
  /** "last": a formula at the very end of the text; the next character may still show that it is an amount of money. */
  readonly kind: "text" | "formula" | "last" | "begun";
}

/**
 * Splits the text into formulas, the text between them, and an unfinished formula at the end; code in backticks is
 * text.
 */
function* steps(text: string): Generator<Step> {
  for (let at = 0; at < text.length; ) {
    const step = stepAt(text, at);
    yield step;
    at += step.raw.length;
  }
}

function stepAt(text: string, at: number): Step {
  const plain = /[`\\$]/g;
  plain.lastIndex = at;
  const next = plain.exec(text)?.index ?? text.length;
  if (next > at) return { raw: text.slice(at, next), kind: "text" };
  const rest = text.slice(at);
  if (text[at] === "`") {
    const code = /^(`+)(?!`)([\s\S]*?[^`])\1(?!`)/.exec(rest);
    const isCode = code && ((code[1] as string).length > 2 || !EMPTY_LINE.test(code[0]));
    return { raw: isCode ? code[0] : (/^`+/.exec(rest)?.[0] as string), kind: "text" };
  }
  const formula = formulaAt(rest, text[at - 1]);
  if (formula) return { raw: formula.raw, kind: formula.raw.length === rest.length && rest.endsWith("$") ? "last" : "formula" };
  if (hasBegun(rest, text[at - 1] ?? "")) return { raw: rest, kind: "begun" };
  return { raw: rest.slice(0, text[at] === "\\" || rest.startsWith("$$") ? 2 : 1), kind: "text" };
}

/**
 * Whether the rest of a growing text may be the beginning of a formula. For ordinary words and amounts this is true
 * only for a few characters.
 */
function hasBegun(rest: string, before: string): boolean {
  if (rest.length > INLINE_MAX_CHARACTERS || EMPTY_LINE.test(rest)) return false;
  if (/^\\(?:$|[([])/.test(rest)) return !/\\[)\]]/.test(rest);
  if (rest.startsWith("$$")) return !rest.slice(2).includes("$$") && !isPriceRange(rest.slice(2));
  const tex = rest.slice(1);
  if (rest[0] !== "$" || tex.replace(/\\[\s\S]/g, "").includes("$") || !mayOpen(tex, before)) return false;
  if (/^\d/.test(tex)) return /^[\d.,]{1,9}$/.test(tex) || MATH_SIGN.test(tex);
  return tex.length < MAX_HELD_WORDS || MATH_SIGN.test(tex);
}

/**
 * The number of characters after a dollar sign that are held back, because a formula may follow. If more characters
 * follow without a second dollar sign, they are shown as words. At 50 words a second this many characters arrive in a
 * third of a second.
 */
const MAX_HELD_WORDS = 60;

/** Returns the text without an unfinished formula at its end. */
export function withoutBegun(text: string): string {
  if (!/[$\\]/.test(text)) return text;
  let length = 0;
  for (const { raw, kind } of steps(text)) {
    if (kind === "begun" || kind === "last") return text.slice(0, length);
    if (/^`/.test(raw) && !/[^`]/.test(raw) && !EMPTY_LINE.test(text.slice(length))) return text; // unfinished code
    length += raw.length;
  }
  return text;
}

/** A character from the private use area, which replaces a `|` in a formula while a table row is split into cells. */
export const BAR = "\uE07C";

/**
 * Returns the text of a table in which a `|` of a formula does not separate cells. The number of lines stays the same.
 */
export function withBars(text: string): string {
  if (!/[$\\]/.test(text)) return text;
  const bars = (line: string) => [...steps(line)].map(({ raw, kind }) => (isFormula(kind) ? raw.replaceAll("|", BAR) : raw)).join("");
  return text.split("\n").map(bars).join("\n");
}

/** Returns the text with formulas replaced by letters, so that their signs have no meaning in Markdown. */
export function covered(text: string): string {
  if (!/[$\\]/.test(text)) return text;
  return [...steps(text)].map(({ raw, kind }) => (isFormula(kind) ? "a".repeat(raw.length) : raw)).join("");
}

function isFormula(kind: Step["kind"]): boolean {
  return kind === "formula" || kind === "last";
}
