/**
 * Sets the formulas of a block once KaTeX is loaded; the first formula loads it. Until then a placeholder takes about the
 * same space.
 *
 * A wrong formula is shown as its source, with the error.
 */

import { signal } from "@preact/signals";

import { replaceContent } from "./patch.ts";

type Typeset = (tex: string, isDisplay: boolean) => DocumentFragment;

/** The longest wait for the fonts. On a slow connection formulas are shown without them, and can be read. */
const FONTS_MS = 2_000;

/** Null until KaTeX is loaded. */
export const typeset = signal<Typeset | null>(null);
let isAsked = false;

/** Loads KaTeX, once. A formula that is still being written loads it too, so that KaTeX arrives in time. */
export function wantFormulas(): void {
  if (isAsked) return;
  isAsked = true;
  void import("./katex.ts").then(
    async (loaded) => {
      await Promise.race([loaded.fontsLoaded(), new Promise((done) => setTimeout(done, FONTS_MS))]);
      typeset.value = loaded.typeset;
    },
    () => (isAsked = false), // offline: placeholders stay, until the next formula tries again
  );
}

/** Sets the formulas in `box` that are not set yet. */
export function setFormulas(box: Element): void {
  const formulas = box.querySelectorAll<HTMLElement>("[data-math=inline], [data-math=display]");
  if (!formulas.length) return;
  wantFormulas();
  for (const element of formulas) {
    const tex = element.textContent ?? "";
    if (typeset.value) set(element, tex, typeset.value);
    else reserve(element, tex);
  }
}

function set(element: HTMLElement, tex: string, typeset: Typeset): void {
  const isDisplay = element.dataset.math === "display";
  replaceContent(element, () => {
    element.style.cssText = "";
    try {
      element.replaceChildren(typeset(tex, isDisplay));
      element.dataset.math = isDisplay ? "display set" : "set";
      if (isDisplay) element.tabIndex = 0; // it scrolls
    } catch (wrong) {
      const hint = (wrong as Error).message;
      const source = document.createElement("code");
      source.textContent = tex;
      const note = document.createElement("small");
      note.textContent = hint;
      element.dataset.math = isDisplay ? "display wrong" : "wrong";
      element.title = hint;
      element.replaceChildren(source, " ", note);
    }
  });
}

/** Gives the placeholder about the size of the formula; the source stays in it, invisible. */
function reserve(element: HTMLElement, tex: string): void {
  replaceContent(element, () => {
    if (element.dataset.math === "display") element.style.minHeight = heightOfFormula(tex);
    else element.style.width = `${Math.max(0.6, seenLength(tex) * LETTER_EMS + (tex.match(SPACED)?.length ?? 0) * SPACED_EMS)}em`;
  });
}

/** Measured in Chromium: KaTeX's letters are 1.21 times as large as the words around, and signs have space around them. */
const LETTER_EMS = 0.6;
const SPACED_EMS = 0.6;
const SPACED = /[=<>+*-]|\\(?:[lgn]eq?|to|in|approx|equiv|times|cdot|pm|subset(?:eq)?|cup|cap|[Rr]ightarrow|Leftrightarrow|implies|iff|mapsto)\b/g;

/** Tall signs, and the height in ems of a row that holds one; measured as well. */
const HIGH: [RegExp, number][] = [
  [/\\(?:sum|prod|bigcup|bigcap|lim|max|min)\b/, 3.7],
  [/\\i{1,3}nt\b/, 3.1],
  [/\\[dc]?frac|\\d?binom|\\over\b/, 2.7],
];
const PLAIN_ROW_EMS = 1.8;

/** The height of a display formula, estimated from its rows: a CSS length. */
export function heightOfFormula(tex: string): string {
  const rows = tex.replace(/\\\\\s*(?=\\end|$)/g, "").split(/\\\\|\\cr\b/);
  const ems = rows.map((row) => HIGH.find(([sign]) => sign.test(row))?.[1] ?? PLAIN_ROW_EMS);
  return `${ems.reduce((sum, each) => sum + each, 0).toFixed(1)}em`;
}

/** The number of visible letters and signs; superscripts and subscripts count two thirds. */
function seenLength(tex: string): number {
  const words = tex.replace(/\\(?:left|right|math[a-z]+|text[a-z]*|operatorname|[cd]?frac|sqrt|[,;!:>])|[&\s]/g, "").replace(/\\[a-zA-Z]+/g, "x");
  const small = words.match(/[\^_](?:\{[^{}]*\}|.)/g)?.join("").replace(/[\^_{}]/g, "").length ?? 0;
  return words.replace(/[\^_{}]/g, "").length - small / 3;
}
