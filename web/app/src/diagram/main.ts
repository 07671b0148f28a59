/**
 * Draws diagrams of Mermaid in a frame that has no origin, may fetch nothing but the server's scripts, and shows nothing:
 * it is asked by messages and answers with SVG, which the page shows as a picture.
 *
 * `thread/markdown/drawing.ts` asks. The page holds the deadline, and throws the frame away when it is over.
 */

import mermaid from "mermaid";

import { themeVariables } from "./theme.ts";

/** What is asked and what comes back; `id` belongs to one question. */
export interface Question {
  readonly id: number;
  readonly source: string;
  readonly isDark: boolean;
}

export interface Answer {
  readonly id: number;
  /** Nothing yet: a sign that this goes on, once a second. */
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

/** Mermaid's layout takes seconds beyond. Its own default is 500. */
const MAX_EDGES = 300;

const SIGN_MS = 1_000;

const FONT = 'system-ui, -apple-system, "Segoe UI", sans-serif';

addEventListener("message", (event: MessageEvent<Question>) => {
  if (event.source !== parent) return;
  const { id, source, isDark } = event.data;
  const signs = setInterval(() => answer({ id, isDrawing: true }), SIGN_MS);
  void drawn(id, source, isDark).then(answer).finally(() => clearInterval(signs));
});

/** Only the page may frame this (server/api/page.py), so it goes to nobody else. */
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

/** As a picture has to be: XML, with its own width and height. */
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

/** The first line says what, and often where. */
function sentence(wrong: unknown): string {
  const said = wrong instanceof Error ? wrong.message : String(wrong);
  return (said.split("\n")[0] ?? "").replace(/[:.\s]+$/, "").slice(0, 200) || "Mermaid cannot read this";
}

answer({ id: 0 });
