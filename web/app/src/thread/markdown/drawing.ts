/**
 * Draws diagrams in an isolated frame: without an origin the frame can access neither the page nor its storage, its
 * policy lets it fetch only scripts, and it returns only a picture.
 *
 * Diagrams are drawn one after the other. A frame that does not answer in time is discarded, and the next diagram gets a
 * new frame.
 */

import type { Answer } from "../../diagram/main.ts";

export interface Drawing {
  /** An address for `<img>`: SVG there runs nothing and fetches nothing (https://www.w3.org/TR/SVG2/conform.html#secure-static-mode). */
  readonly src: string;
  /** In CSS pixels. */
  readonly width: number;
  readonly height: number;
  readonly title: string;
}

/** Diagrams that people write have a tenth of this size. Mermaid's own bound is 50,000. */
const MAX_SOURCE_CHARACTERS = 20_000;
const MAX_SVG_CHARACTERS = 2_000_000;

/** Time to load Mermaid (some 300 kB); and time for a diagram, which may have to load the code of its kind. */
const LOAD_MS = 30_000;
const DRAW_MS = 30_000;

/** How long the frame may be silent while it draws: every second it signals that it is not stuck. */
const SILENT_MS = 8_000;

/** A failure that a retry may mend. A wrong diagram, or one that takes too long, fails every time. */
class NotLoaded extends Error {}

/** The newest pictures, so that a message that is drawn anew shows its diagram at once. */
const REMEMBERED = 60;

const drawings = new Map<string, Promise<Drawing>>();
const ready = new Map<string, Drawing>();
let last: Promise<unknown> = Promise.resolve();
let frame: HTMLIFrameElement | null = null;
/** The frame, once it is loaded. */
let opened: Promise<HTMLIFrameElement> | null = null;
let count = 0;

/** The picture of a diagram that was drawn before. */
export function drawnBefore(source: string, isDark: boolean): Drawing | null {
  return ready.get(key(source, isDark)) ?? null;
}

/** Rejects with an Error with a sentence for people. */
export function draw(source: string, isDark: boolean): Promise<Drawing> {
  const known = drawings.get(key(source, isDark));
  if (known) return known;
  const drawing = last.then(() => drawNow(source, isDark));
  last = drawing.catch(() => undefined);
  drawings.set(key(source, isDark), drawing);
  void drawing.then(
    (drawn) => ready.set(key(source, isDark), drawn),
    (wrong) => wrong instanceof NotLoaded && drawings.delete(key(source, isDark)),
  );
  for (const old of [...drawings.keys()].slice(0, -REMEMBERED)) {
    drawings.delete(old);
    ready.delete(old);
  }
  return drawing;
}

function key(source: string, isDark: boolean): string {
  return `${isDark ? "dark" : "light"} ${source}`;
}

async function drawNow(source: string, isDark: boolean): Promise<Drawing> {
  if (source.length > MAX_SOURCE_CHARACTERS) throw new Error(`A diagram may have ${MAX_SOURCE_CHARACTERS.toLocaleString("en")} characters; this one is longer`);
  const to = await (opened ??= open());
  const id = (count += 1);
  const answered = answerOf(to, id, DRAW_MS, new Error("Drawing this takes too long"), SILENT_MS);
  to.contentWindow?.postMessage({ id, source, isDark }, "*"); // its origin is opaque, so that no other name fits it
  const { svg, width, height, title, wrong } = await answered.catch((late: unknown) => {
    close();
    throw late;
  });
  if (typeof wrong === "string") throw new Error(wrong);
  if (typeof svg !== "string" || svg.length > MAX_SVG_CHARACTERS || !(Number(width) > 0) || !(Number(height) > 0)) throw new Error("The picture of this diagram is too large");
  return { src: `data:image/svg+xml;charset=utf-8,${encodeURIComponent(svg)}`, width: Number(width), height: Number(height), title: String(title) };
}

/** Loads the frame in advance, while a diagram is still being written. */
export function prepare(): void {
  opened ??= open();
  opened.catch(() => undefined);
}

async function open(): Promise<HTMLIFrameElement> {
  const made = (frame = document.createElement("iframe"));
  made.setAttribute("sandbox", "allow-scripts");
  made.src = "/diagram";
  made.title = "Draws diagrams";
  made.tabIndex = -1;
  made.ariaHidden = "true";
  // Mermaid measures its words, so the frame needs a layout; it is invisible and takes no space.
  Object.assign(made.style, { position: "fixed", left: "0", top: "0", width: "760px", height: "600px", border: "0", opacity: "0", pointerEvents: "none", zIndex: "-1" });
  const loaded = answerOf(made, 0, LOAD_MS, new NotLoaded("What draws diagrams could not be loaded"));
  document.body.append(made);
  try {
    await loaded;
  } catch (wrong) {
    close();
    throw wrong;
  }
  return made;
}

function close(): void {
  frame?.remove();
  frame = opened = null;
}

function answerOf(of: HTMLIFrameElement, id: number, ms: number, tooLate: Error, silentMs = ms): Promise<Answer> {
  return new Promise((resolve, reject) => {
    const stop = () => {
      clearTimeout(timer);
      clearTimeout(silence);
      removeEventListener("message", hear);
    };
    const giveUp = () => {
      stop();
      reject(tooLate);
    };
    const timer = setTimeout(giveUp, ms);
    let silence = setTimeout(giveUp, silentMs);
    const hear = (event: MessageEvent<Answer>) => {
      if (event.source !== of.contentWindow || event.data?.id !== id) return;
      if (event.data.isDrawing) {
        clearTimeout(silence);
        silence = setTimeout(giveUp, silentMs);
        return;
      }
      stop();
      resolve(event.data);
    };
    addEventListener("message", hear);
  });
}
