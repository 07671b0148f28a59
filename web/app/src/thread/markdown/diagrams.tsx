/**
 * Shows a diagram as a picture, with its source behind a button. If the diagram cannot be drawn, shows the error and
 * the source.
 *
 * The box is exactly as high as the picture. In an old chat that this browser draws for the first time, the height is
 * estimated. While such a box is in sight it keeps the estimated height, so that the text around it does not move. A
 * box that is out of sight takes the picture's height at once: above the reader `ScrollKeeper` corrects the scroll
 * position, and below the reader the change is not visible.
 */

import { signal } from "@preact/signals";
import { render } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";

import { theme } from "../../state/theme.ts";
import { tellSettled } from "../scroll.ts";
import { Canvas } from "./canvas.tsx";
import { draw, drawnBefore, type Drawing } from "./drawing.ts";
import { heightOf } from "./heights.ts";
import { replaceContent } from "./draw.ts";
import { sizes } from "./sizes.ts";

const system = matchMedia("(prefers-color-scheme: dark)");
const isSystemDark = signal(system.matches);
system.addEventListener("change", () => (isSystemDark.value = system.matches));

function isDarkNow(): boolean {
  return theme.value === "system" ? isSystemDark.value : theme.value === "dark";
}

/** Draws a diagram that will be shown next. Never rejects. */
export function drawAhead(source: string): Promise<unknown> {
  return draw(source, isDarkNow()).catch(() => undefined);
}

export interface DiagramProps {
  source: string;
  /** The height of the content that was shown here before, in CSS pixels; 0 if no content was shown. */
  heightBefore: number;
}

export function Diagram({ source, heightBefore }: DiagramProps) {
  const isDark = isDarkNow();
  const [drawing, setDrawing] = useState<Drawing | null>(() => drawnBefore(source, isDark).drawing);
  const [wrong, setWrong] = useState(() => drawnBefore(source, isDark).wrong);
  const [isSource, setSource] = useState(false);
  const [isEstimated, setEstimated] = useState(() => !sizes.of(source));
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
  const box = useRef<HTMLDivElement>(null);
  const isMisfit = isEstimated && drawing !== null;
  useEffect(() => {
    if (!isMisfit || !box.current) return;
    const sight = new IntersectionObserver(([seen]) => seen && !seen.isIntersecting && setEstimated(false));
    sight.observe(box.current);
    return () => sight.disconnect();
  }, [isMisfit]);
  useLayoutEffect(() => {
    if (!isEstimated && box.current) tellSettled(box.current);
  }, [isEstimated]);
  const showsSource = isSource || !!wrong;
  return (
    <>
      <figcaption>
        <span>mermaid</span>
        {!wrong && (
          <button type="button" aria-pressed={isSource} onClick={() => (setSource(!isSource), setEstimated(false))}>
            Source
          </button>
        )}
        <button type="button" data-copy="code">
          Copy
        </button>
      </figcaption>
      {wrong && <p data-wrong>This diagram cannot be drawn. {wrong}.</p>}
      <pre tabIndex={0} aria-label="Code, mermaid" hidden={!showsSource} style={wrong ? { maxHeight: `${heightOf(source)}px` } : undefined}>
        <code>{source}</code>
      </pre>
      {!showsSource && (
        <Canvas source={source} size={sizes.of(source)} heightBefore={heightBefore} isEstimated={isEstimated} box={box}>
          {drawing && <img src={drawing.src} alt={`Diagram: ${drawing.title}`} />}
        </Canvas>
      )}
    </>
  );
}

/** The elements that contain diagrams within lists and other blocks that are not drawn as components. */
const nested = new Set<Element>();

/** Replaces the given code elements by diagrams. */
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
    const height = sizes.of(source) ? 0 : (code.parentElement?.offsetHeight ?? 0);
    replaceContent(figure, () => {
      figure.replaceChildren();
      render(<Diagram source={source} heightBefore={height} />, figure);
    });
    nested.add(figure);
  }
}

export { prepare } from "./drawing.ts";
