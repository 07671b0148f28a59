/** KaTeX with its style sheet and fonts, loaded with the first formula. */

import DOMPurify from "dompurify";
import katex from "katex";

import "katex/dist/katex.min.css";

/** The largest size that `\rule{…}`, `\kern{…}` and the like may have, in ems; KaTeX's default is no limit. */
const MAX_SIZE_EMS = 30;

/**
 * The number of times that KaTeX may expand its own macros in one formula: its default, far more than formulas in
 * papers need.
 */
const MAX_EXPANSIONS = 1_000;

/** The longest display formula that `math.ts` finds; a fence of `math` may be longer. */
const MAX_CHARACTERS = 5_000;

/**
 * KaTeX's time grows with the square of the columns: 5,000 columns took 3.5 times as long as 5,000 letters. A matrix of
 * 20 by 20 has 399 ends of cells.
 */
const MAX_CELLS = 500;
const CELL_ENDS = /&|\\\\|\\cr\b/g;

/**
 * Commands that define a macro. These commands are refused: a macro's body of 2,400 letters that is used 800 times
 * becomes 2 million letters, which take minutes. Macros are valid only within their formula, so definitions are of
 * little use.
 */
const DEFINITION = /\\(?:[gex]?def|let|futurelet|(?:re)?newcommand|providecommand)(?![a-zA-Z@])/;

const MATHML =
  "math semantics annotation mrow mi mo mn ms mtext mspace msup msub msubsup munder mover munderover mfrac msqrt mroot mtable mtr mtd mpadded mphantom menclose mstyle".split(
    " ",
  );
const TAGS = [...MATHML, "span", "svg", "path", "line", "g"];
const ATTRIBUTES =
  "accent accentunder aria-hidden class columnalign columnlines columnspacing depth display displaystyle encoding fence form height linebreak linethickness lspace mathbackground mathcolor mathsize mathvariant maxsize minsize notation preserveAspectRatio rowlines rowspacing rspace scriptlevel separator stretchy style symmetric viewBox voffset width x1 x2 xmlns y1 y2 d stroke-width".split(
    " ",
  );

/**
 * Returns a formula as elements, with invisible MathML for screen readers. KaTeX sets styles through the DOM, which no
 * Content Security Policy refuses.
 *
 * Throws an Error with a sentence for people if the formula is wrong.
 */
export function typeset(tex: string, isDisplay: boolean): DocumentFragment {
  if (tex.length > MAX_CHARACTERS) throw new Error(`A formula may have ${MAX_CHARACTERS.toLocaleString("en")} characters; this one is longer`);
  if ((tex.match(CELL_ENDS)?.length ?? 0) > MAX_CELLS) throw new Error(`A formula may have ${MAX_CELLS} cells; this one has more`);
  const definition = DEFINITION.exec(tex);
  if (definition) throw new Error(`A formula may not define macros (character ${definition.index + 1})`);
  const box = document.createElement("span");
  try {
    katex.render(tex, box, {
      displayMode: isDisplay,
      trust: false,
      strict: false,
      maxSize: MAX_SIZE_EMS,
      maxExpand: MAX_EXPANSIONS,
      errorColor: "var(--bad)",
    });
  } catch (wrong) {
    throw new Error(sentence(wrong));
  }
  DOMPurify.sanitize(box, { IN_PLACE: true, ALLOWED_TAGS: TAGS, ALLOWED_ATTR: ATTRIBUTES });
  const fragment = document.createDocumentFragment();
  fragment.append(...box.childNodes);
  return fragment;
}

function sentence(wrong: unknown): string {
  if (!(wrong instanceof katex.ParseError)) return "The formula is nested too deeply"; // the stack overflowed (RangeError)
  const at = wrong.position === undefined ? "" : ` (character ${wrong.position + 1})`;
  return wrong.rawMessage.replace(/\.?$/, at);
}

/**
 * Resolves when the common fonts are loaded: a formula that is drawn earlier changes its width when the fonts arrive.
 */
export async function fontsLoaded(): Promise<void> {
  const fonts = ["1em KaTeX_Main", "italic 1em KaTeX_Math", "1em KaTeX_Size1", "1em KaTeX_Size2"];
  await Promise.allSettled(fonts.map((font) => document.fonts.load(font)));
}
