/**
 * Replaces the sources of formulas by set formulas, and limits this work per frame and per answer. Loaded with KaTeX.
 */

import { tellSettled } from "../scroll.ts";
import { replaceContent } from "./draw.ts";
import { typeset } from "./katex.ts";

/**
 * The most characters of formulas that are set in one frame; only the last formula may exceed this. KaTeX takes 20 µs
 * for each letter on an idle machine and 130 µs on a busy machine, measured with a formula of 5,000 letters. An answer
 * of ten pages has some 10,000 characters of formulas.
 */
const FRAME_CHARACTERS = 1_000;

/**
 * The most characters of formulas that are set in one answer: each becomes about five elements, which all stay in the
 * document.
 */
const ANSWER_CHARACTERS = 30_000;

const setIn = new WeakMap<Element, number>();
let charactersLeft = FRAME_CHARACTERS;
let isFrameAsked = false;

/**
 * Sets as many of these formulas as a frame's time permits, the newest first, since most readers look at the end; later
 * frames set the others.
 */
export function setWaiting(waiting: Set<HTMLElement>): void {
  if (!waiting.size) return;
  let last: Element | null = null;
  for (const element of [...waiting].reverse()) {
    if (charactersLeft <= 0) break;
    waiting.delete(element);
    if (!element.isConnected) continue;
    last = element;
    const tex = element.textContent ?? "";
    const answer = element.closest("article") ?? document.body;
    const characters = (setIn.get(answer) ?? 0) + tex.length;
    charactersLeft -= tex.length;
    if (characters > ANSWER_CHARACTERS) refuse(element, tex, TOO_MANY);
    else {
      setIn.set(answer, characters);
      set(element, tex);
    }
  }
  if (last) tellSettled(last);
  if (isFrameAsked) return;
  isFrameAsked = true;
  requestAnimationFrame(() => {
    isFrameAsked = false;
    charactersLeft = FRAME_CHARACTERS;
    setWaiting(waiting);
  });
}

const TOO_MANY = `An answer may have ${ANSWER_CHARACTERS.toLocaleString("en")} characters of formulas`;

function set(element: HTMLElement, tex: string): void {
  const isDisplay = element.dataset.math === "display";
  replaceContent(element, () => {
    element.style.cssText = "";
    try {
      element.replaceChildren(typeset(tex, isDisplay));
      element.dataset.math = isDisplay ? "display set" : "set";
      if (isDisplay) element.tabIndex = 0; // it scrolls
    } catch (wrong) {
      refuse(element, tex, (wrong as Error).message);
    }
  });
}

/** Shows the source, and why the formula is not set. */
function refuse(element: HTMLElement, tex: string, hint: string): void {
  replaceContent(element, () => {
    const source = document.createElement("code");
    source.textContent = tex;
    const note = document.createElement("small");
    note.textContent = hint;
    element.style.cssText = "";
    element.dataset.math = element.dataset.math === "display" ? "display wrong" : "wrong";
    element.title = hint;
    element.replaceChildren(source, " ", note);
  });
}

export { fontsLoaded } from "./katex.ts";
