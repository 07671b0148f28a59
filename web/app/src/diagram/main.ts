/**
 * Draws diagrams of Mermaid in a frame that has no origin, may fetch nothing but the server's scripts, and shows nothing:
 * it is asked by messages and answers with SVG, which the page shows as a picture.
 *
 * `thread/markdown/drawing.ts` asks. The page holds the deadline, and throws the frame away when it is over.
 */

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
  /** A sign of life, once a second, while the diagram is not finished. */
  readonly isDrawing?: boolean;
  /** SVG as XML. */
  readonly svg?: string;
  /** In CSS pixels. */
  readonly width?: number;
  readonly height?: number;
  readonly title?: string;
  /** What is wrong with the source, for people. */
  readonly wrong?: string;
}

/** With more edges Mermaid's layout takes seconds. Its own default is 500. */
const MAX_EDGES = 300;

const SIGN_MS = 1_000;

const FONT = 'system-ui, -apple-system, "Segoe UI", sans-serif';

addEventListener("message", (event: MessageEvent<Question>) => {
  if (event.source !== parent) return;
  const { id, source, isDark } = event.data;
  const signs = setInterval(() => answer({ id, isDrawing: true }), SIGN_MS);
  void drawn(id, source, isDark).then(answer).finally(() => clearInterval(signs));
});

/** Only the page may frame this document (server/api/page.py), so no other page receives the message. */
function answer(answer: Answer): void {
  parent.postMessage(answer, "*");
}

async function drawn(id: number, source: string, isDark: boolean): Promise<Answer> {
  mermaid.initialize({
    startOnLoad: false,
    securityLevel: "strict",
    // A diagram may not change these by its own directives.
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
    const { svg, diagramType } = await mermaid.render(`diagram-${id}`, source);
    return { id, ...picture(svg), title: title(svg) || diagramType };
  } catch (wrong) {
    return { id, wrong: sentence(wrong) };
  } finally {
    document.body.replaceChildren();
  }
}

/** Makes the SVG fit for `<img>`: XML, with a width and a height of its own. */
function picture(html: string): { svg: string; width: number; height: number } {
  const svg = new DOMParser().parseFromString(html, "text/html").querySelector("svg");
  if (!svg) throw new Error("Mermaid drew nothing");
  const { width, height } = svg.viewBox.baseVal;
  svg.setAttribute("width", String(width));
  svg.setAttribute("height", String(height));
  svg.style.maxWidth = "";
  svg.style.backgroundColor = "";
  return { svg: new XMLSerializer().serializeToString(svg), width, height };
}

function title(svg: string): string {
  return /<title[^>]*>([^<]*)<\/title>/.exec(svg)?.[1] ?? "";
}

/** The first line of an error says what is wrong, and often where. */
function sentence(wrong: unknown): string {
  const said = wrong instanceof Error ? wrong.message : String(wrong);
  return (said.split("\n")[0] ?? "").replace(/[:.\s]+$/, "").slice(0, 200) || "Mermaid cannot read this";
}

answer({ id: 0 });
