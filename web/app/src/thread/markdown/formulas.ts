/**
 * Sets the formulas of a block once KaTeX is loaded; the first formula loads it. Until then a placeholder takes about the
 * same space.
 *
 * A wrong formula is shown as its source, with the error.
 */

import { signal } from "@preact/signals";

import { once } from "../../ui/once.ts";
import { replaceContent } from "./draw.ts";

type Typeset = (waiting: Set<HTMLElement>) => void;

/** The longest wait for the fonts. On a slow connection formulas are shown without these fonts, and can be read. */
const FONTS_MS = 2_000;

/**
 * The function that sets waiting formulas. Null until KaTeX and its fonts are loaded, or the wait for the fonts is
 * over.
 */
export const typeset = signal<Typeset | null>(null);

/**
 * Loads KaTeX and waits for its fonts. This function is called while the first formula is still being written, so that
 * KaTeX arrives in time. After a failure the placeholders stay until the next formula calls this function.
 */
export const wantFormulas = once(async () => {
  const loaded = await import("./typeset.ts");
  await Promise.race([loaded.fontsLoaded(), new Promise((done) => setTimeout(done, FONTS_MS))]);
  typeset.value = loaded.setWaiting;
});

/** Sets the formulas in `box` that are not set yet: in each frame as many as its time permits. */
export function setFormulas(box: Element): void {
  const formulas = box.querySelectorAll<HTMLElement>("[data-math=inline], [data-math=display]");
  if (!formulas.length) return;
  wantFormulas();
  for (const element of formulas) {
    reserve(element, element.textContent ?? "");
    if (typeset.value) waiting.add(element);
  }
  queueMicrotask(() => typeset.value?.(waiting)); // after all blocks are drawn, and before they are painted
}

/** Formulas that are not set yet, in the order in which they were drawn. */
const waiting = new Set<HTMLElement>();

/** Gives the placeholder about the size of the formula; the source stays in the placeholder, invisible. */
function reserve(element: HTMLElement, tex: string): void {
  replaceContent(element, () => {
    if (element.dataset.math === "display") element.style.minHeight = heightOfFormula(tex);
    else element.style.width = `${Math.max(0.6, seenLength(tex) * LETTER_EMS + (tex.match(SPACED)?.length ?? 0) * SPACED_EMS)}em`;
  });
}

/**
 * Measured in Chromium: KaTeX's letters are 1.21 times as large as the surrounding text, and signs have space around
 * them.
 */
const LETTER_EMS = 0.6;
const SPACED_EMS = 0.6;
const SPACED = /[=<>+*-]|\\(?:[lgn]eq?|to|in|approx|equiv|times|cdot|pm|subset(?:eq)?|cup|cap|[Rr]ightarrow|Leftrightarrow|implies|iff|mapsto)\b/g;

/** Tall signs, and the height in ems of a row with such a sign; measured in Chromium. */
const HIGH: [RegExp, number][] = [
  [/\\(?:sum|prod|bigcup|bigcap|lim|max|min)\b/, 3.7],
  [/\\i{1,3}nt\b/, 3.1],
  [/\\[dc]?frac|\\d?binom|\\over\b/, 2.7],
];
const PLAIN_ROW_EMS = 1.8;

/** Estimates the height of a display formula from its rows. Returns a CSS length. */
export function heightOfFormula(tex: string): string {
  const rows = tex.replace(/\\\\\s*(?=\\end|$)/g, "").split(/\\\\|\\cr\b/);
  const ems = rows.map((row) => HIGH.find(([sign]) => sign.test(row))?.[1] ?? PLAIN_ROW_EMS);
  return `${ems.reduce((sum, each) => sum + each, 0).toFixed(1)}em`;
}

/**
 * Estimates the width of a formula in letters: a command such as `\\alpha` counts as one letter, a letter in a
 * superscript or subscript as two thirds.
 */
function seenLength(tex: string): number {
  const words = tex.replace(/\\(?:left|right|math[a-z]+|text[a-z]*|operatorname|[cd]?frac|sqrt|[,;!:>])|[&\s]/g, "").replace(/\\[a-zA-Z]+/g, "x");
  const small = words.match(/[\^_](?:\{[^{}]*\}|.)/g)?.join("").replace(/[\^_{}]/g, "").length ?? 0;
  return words.replace(/[\^_{}]/g, "").length - small / 3;
}
