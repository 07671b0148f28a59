/**
 * Draws Mermaid diagrams in a hidden frame that has no origin and may fetch only the server's scripts. The page sends
 * sources to the frame as messages, and the frame answers with SVG, which the page shows as a picture.
 *
 * `thread/markdown/drawing.ts` sends the messages. That module also checks the deadline, and removes a frame that
 * misses the deadline.
 */

import { plain, withoutAddresses } from "./harmless.ts"; // first, because Mermaid may keep references to the setters that it finds

import mermaid from "mermaid";

import { themeVariables } from "./theme.ts";

/** A request and its replies; `id` belongs to one request. */
export interface Question {
  readonly id: number;
  readonly source: string;
  readonly isDark: boolean;
}

export interface Answer {
  readonly id: number;
  /** The frame sends this message once a second while the diagram is being drawn. */
  readonly isDrawing?: boolean;
  /** SVG as XML. */
  readonly svg?: string;
  /** In CSS pixels. */
  readonly width?: number;
  readonly height?: number;
  readonly title?: string;
  /** The reason why the diagram cannot be drawn, as a sentence for people. */
  readonly wrong?: string;
}

/** The maximum number of edges: with more edges Mermaid's layout takes seconds. Mermaid's own default is 500. */
const MAX_EDGES = 300;

const SIGN_MS = 1_000;

const FONT = 'system-ui, -apple-system, "Segoe UI", sans-serif';

addEventListener("message", (event: MessageEvent<Question>) => {
  if (event.source !== parent) return;
  const { id, source, isDark } = event.data;
  const signs = setInterval(() => answer({ id, isDrawing: true }), SIGN_MS);
  void drawn(id, source, isDark).then(answer).finally(() => clearInterval(signs));
});

/** Only the page may frame this document (server/threadcast/api/page.py), so no other page receives the message. */
function answer(answer: Answer): void {
  parent.postMessage(answer, "*");
}

async function drawn(id: number, source: string, isDark: boolean): Promise<Answer> {
  mermaid.initialize({
    startOnLoad: false,
    securityLevel: "strict",
    // A diagram's own directives may not change these settings.
    secure: ["secure", "securityLevel", "startOnLoad", "maxTextSize", "maxEdges", "suppressErrorRendering", "htmlLabels", "fontFamily", "themeCSS"],
    suppressErrorRendering: true,
    maxEdges: MAX_EDGES,
    htmlLabels: false,
    flowchart: { htmlLabels: false },
    theme: "base",
    themeVariables: themeVariables(isDark),
    fontFamily: FONT,
  });
  try {
    const { svg, diagramType } = await mermaid.render(`diagram-${id}`, withoutAddresses(source));
    return { id, ...picture(svg), title: title(svg) || diagramType };
  } catch (wrong) {
    return { id, wrong: sentence(wrong) };
  } finally {
    document.body.replaceChildren();
  }
}

/**
 * Makes the SVG usable in `<img>`: as XML, with its own width and height, and with little empty space around the
 * drawing.
 */
function picture(html: string): { svg: string; width: number; height: number } {
  const svg = new DOMParser().parseFromString(html, "text/html").querySelector("svg");
  if (!svg) throw new Error("Mermaid drew nothing");
  svg.style.maxWidth = "";
  svg.style.backgroundColor = "";
  document.body.append(document.adoptNode(svg)); // only an element in the document has a box
  const edge = svg.viewBox.baseVal.x + svg.viewBox.baseVal.width;
  for (const line of svg.querySelectorAll("line")) if (line.getBBox().x > edge) line.remove(); // the line for today, in a plan for other days
  for (const empty of svg.querySelectorAll("text")) if (!empty.textContent) empty.remove(); // an empty title
  const { x, y, width, height } = drawnBox(svg);
  svg.setAttribute("viewBox", `${x} ${y} ${width} ${height}`);
  svg.setAttribute("width", String(width));
  svg.setAttribute("height", String(height));
  return { svg: new XMLSerializer().serializeToString(svg), width, height };
}

/** The distance that lines and arrowheads may extend beyond the box that a browser computes from the shapes alone. */
const MARGIN_PX = 8;

/**
 * Returns the box around the drawing in whole pixels, within Mermaid's own box. Some kinds (pie, gantt) have a fixed
 * height with much empty space.
 */
function drawnBox(svg: SVGSVGElement): { x: number; y: number; width: number; height: number } {
  const all = svg.viewBox.baseVal;
  const seen = svg.getBBox();
  const x = Math.floor(Math.max(all.x, seen.x - MARGIN_PX));
  const y = Math.floor(Math.max(all.y, seen.y - MARGIN_PX));
  const width = Math.ceil(Math.min(all.x + all.width, seen.x + seen.width + MARGIN_PX)) - x;
  const height = Math.ceil(Math.min(all.y + all.height, seen.y + seen.height + MARGIN_PX)) - y;
  return width > 0 && height > 0 ? { x, y, width, height } : all;
}

function title(svg: string): string {
  return plain(/<title[^>]*>([^<]*)<\/title>/.exec(svg)?.[1] ?? "");
}

/** Returns the first line of an error, which says what is wrong, and often where. */
function sentence(wrong: unknown): string {
  const said = wrong instanceof Error ? wrong.message : String(wrong);
  return (said.split("\n")[0] ?? "").replace(/[:.\s]+$/, "").slice(0, 200) || "Mermaid cannot read this";
}

answer({ id: 0 });
