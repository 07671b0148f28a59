/**
 * Draws diagrams in an isolated frame: without an origin the frame can access neither the page nor its storage, its
 * policy lets it fetch only scripts, and it returns only a picture.
 *
 * Diagrams are drawn one after the other (`queue.ts`). A frame that does not answer in time is discarded, and the next
 * diagram gets a new frame.
 */

import type { Answer } from "../../diagram/main.ts";
import { NotNow, Queue, TooLate, type Limits } from "./queue.ts";
import { sizes, type Size } from "./sizes.ts";

export interface Drawing extends Size {
  /**
   * An address for `<img>`, in which an SVG runs no scripts and fetches no files
   * (https://www.w3.org/TR/SVG2/conform.html#secure-static-mode).
   */
  readonly src: string;
  readonly title: string;
}

/**
 * The maximum length of a source: ten times as long as the diagrams that people write. Mermaid's own limit is 50,000.
 */
const MAX_SOURCE_CHARACTERS = 20_000;
const MAX_SVG_CHARACTERS = 2_000_000;

/** The time to load Mermaid (some 300 kB gzipped). */
const LOAD_MS = 30_000;

/** The widths of a phone, and of the column of an answer. */
const MIN_FRAME_PX = 380;
const MAX_FRAME_PX = 760;

/** The number of pictures that are kept, so that a message that is drawn again shows its diagram at once. */
const REMEMBERED = 60;

const drawings = new Map<string, Promise<Drawing>>();
const ready = new Map<string, Drawn>();
const queue = new Queue<Drawing>();
let frame: HTMLIFrameElement | null = null;
/** The frame, once it is loaded. */
let opened: Promise<HTMLIFrameElement> | null = null;
let count = 0;

/** The result for an earlier source: the picture, or a sentence that says what is wrong. */
interface Drawn {
  readonly drawing: Drawing | null;
  readonly wrong: string;
}

const NOT_DRAWN: Drawn = { drawing: null, wrong: "" };

export function drawnBefore(source: string, isDark: boolean): Drawn {
  return ready.get(key(source, isDark)) ?? NOT_DRAWN;
}

/** Draws a diagram. Rejects with an Error whose message is a sentence for people. */
export function draw(source: string, isDark: boolean): Promise<Drawing> {
  const known = drawings.get(key(source, isDark));
  if (known) return known;
  const drawing = queue.add((limits) => drawNow(source, isDark, limits));
  drawings.set(key(source, isDark), drawing);
  void drawing.then(
    (drawing) => {
      sizes.add(source, drawing);
      ready.set(key(source, isDark), { drawing, wrong: "" });
    },
    (wrong: Error) => {
      if (wrong instanceof NotNow) drawings.delete(key(source, isDark));
      else ready.set(key(source, isDark), { drawing: null, wrong: wrong.message });
    },
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

async function drawNow(source: string, isDark: boolean, { ms, silentMs }: Limits): Promise<Drawing> {
  if (source.length > MAX_SOURCE_CHARACTERS) throw new Error(`A diagram may have ${MAX_SOURCE_CHARACTERS.toLocaleString("en")} characters; this one is longer`);
  const to = await (opened ??= open());
  const id = (count += 1);
  const answered = answerOf(to, id, ms, new TooLate("Drawing this takes too long"), silentMs);
  to.contentWindow?.postMessage({ id, source, isDark }, "*"); // the frame's origin is opaque, so only "*" matches it
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
  // Mermaid measures text, so the frame must have a layout; the frame is transparent and takes no space. A gantt chart
  // is as wide as the frame, so that its text can be read on a phone too.
  const width = Math.max(MIN_FRAME_PX, Math.min(MAX_FRAME_PX, innerWidth));
  Object.assign(made.style, { position: "fixed", left: "0", top: "0", width: `${width}px`, height: "600px", border: "0", opacity: "0", pointerEvents: "none", zIndex: "-1" });
  const loaded = answerOf(made, 0, LOAD_MS, new NotNow("The program that draws diagrams could not be loaded"));
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
