/**
 * Shows a diagram as a picture, with its source behind a button. If the diagram cannot be drawn, shows the error and the source.
 *
 * The height of its box is estimated from the source at once, so that nothing below moves when the picture arrives. A
 * larger picture is scaled down a little, and scrolls if it is larger still.
 */

import { signal } from "@preact/signals";
import { render } from "preact";
import { useEffect, useState } from "preact/hooks";

import { theme } from "../../state/theme.ts";
import { draw, drawnBefore, type Drawing } from "./drawing.ts";
import { heightOf } from "./heights.ts";
import { replaceContent } from "./patch.ts";

const system = matchMedia("(prefers-color-scheme: dark)");
const isSystemDark = signal(system.matches);
system.addEventListener("change", () => (isSystemDark.value = system.matches));

/** Below this scale a diagram cannot be read. */
const MIN_SCALE = 0.7;

export function Diagram({ source }: { source: string }) {
  const isDark = theme.value === "system" ? isSystemDark.value : theme.value === "dark";
  const [drawing, setDrawing] = useState<Drawing | null>(() => drawnBefore(source, isDark));
  const [wrong, setWrong] = useState("");
  const [isSource, setSource] = useState(false);
  useEffect(() => {
    let isOver = false;
    draw(source, isDark).then(
      (drawn) => isOver || (setDrawing(drawn), setWrong("")),
      (failed: Error) => isOver || setWrong(failed.message),
    );
    return () => {
      isOver = true;
    };
  }, [source, isDark]);
  const height = heightOf(source);
  const showsSource = isSource || !!wrong;
  return (
    <>
      <figcaption>
        <span>mermaid</span>
        {!wrong && (
          <button type="button" aria-pressed={isSource} onClick={() => setSource(!isSource)}>
            Source
          </button>
        )}
        <button type="button" data-copy="code">
          Copy
        </button>
      </figcaption>
      {wrong && <p data-wrong>This diagram cannot be drawn. {wrong}.</p>}
      <pre tabIndex={0} aria-label="Code, mermaid" hidden={!showsSource} style={wrong ? { maxHeight: `${height}px` } : undefined}>
        <code>{source}</code>
      </pre>
      {!showsSource && (
        <div data-canvas tabIndex={0} aria-busy={!drawing} style={{ height: `${height}px` }}>
          {drawing && <img src={drawing.src} alt={`Diagram: ${drawing.title}`} style={{ width: widthIn(drawing, height) }} />}
        </div>
      )}
    </>
  );
}

/** The width to show: the picture's own, or the box's width if that is less, but never too small to read. */
function widthIn({ width, height }: Drawing, box: number): string {
  const fitting = Math.min(width, (width * (box - CANVAS_PADDING_PX)) / height);
  return `max(${Math.round(MIN_SCALE * width)}px, min(${Math.round(fitting)}px, 100%))`;
}

/** The padding above and below, together; see markdown.module.css. */
const CANVAS_PADDING_PX = 24;

/** Diagrams within lists and the like, which are HTML and not components, by the element that holds each. */
const nested = new Set<Element>();

/** Draws the diagrams whose code is given, in place of the code. */
export function drawNested(codes: readonly Element[]): void {
  for (const holder of nested) {
    if (holder.isConnected) continue;
    render(null, holder);
    nested.delete(holder);
  }
  for (const code of codes) {
    const figure = code.isConnected ? code.closest("figure") : null;
    if (!figure) continue;
    const source = (code.textContent ?? "").replace(/\n$/, "");
    replaceContent(figure, () => {
      figure.replaceChildren();
      render(<Diagram source={source} />, figure);
    });
    nested.add(figure);
  }
}

export { prepare } from "./drawing.ts";
