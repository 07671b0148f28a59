/**
 * The box that shows the picture of a diagram, before and after it is drawn.
 *
 * Once the size of the picture is known, the box is exactly as large: CSS scales the box and the picture to the
 * column's width. Until then its height is estimated from the source. A picture is never scaled below what people can
 * read; its box scrolls instead.
 */

import type { ComponentChildren, Ref } from "preact";

import { heightOf } from "./heights.ts";
import type { Size } from "./sizes.ts";

/** A higher picture is scaled down to this height, and can be enlarged. This height fits a flowchart of ten layers. */
const MAX_HEIGHT_PX = 1_000;

/**
 * The smallest scale: it makes letters of 15 px (diagram/theme.ts) 9 px high, the smallest font size in browsers'
 * menus.
 */
const MIN_SCALE = 0.6;

/** The padding above and below, together; see markdown.module.css. */
const PADDING_PX = 24;

interface CanvasProps {
  source: string;
  /** The size of the picture; null until it is known. */
  size: Size | null;
  /**
   * The height of the content that was shown here before, in CSS pixels; 0 if no content was shown. It replaces the
   * estimate.
   */
  heightBefore: number;
  /** Whether the box keeps its estimated height, and the picture is scaled down to fit in it. */
  isEstimated: boolean;
  box?: Ref<HTMLDivElement>;
  children?: ComponentChildren;
}

export function Canvas({ source, size, heightBefore, isEstimated, box, children }: CanvasProps) {
  const height = isEstimated || !size ? heightBefore || heightOf(source) : null;
  const limit = height ? height - PADDING_PX : MAX_HEIGHT_PX;
  return (
    <div data-canvas tabIndex={0} aria-busy={!children} ref={box} style={{ height: height ? `${height}px` : "auto" }}>
      {size && <div style={{ width: widthIn(size, limit), aspectRatio: `${size.width} / ${size.height}` }}>{children}</div>}
    </div>
  );
}

/**
 * Returns a CSS width that fits the column and the height `limit` (in CSS pixels), but is not less than `MIN_SCALE` of
 * the picture.
 */
function widthIn({ width, height }: Size, limit: number): string {
  return `max(${width * MIN_SCALE}px, min(100%, ${width * Math.min(1, limit / height)}px))`;
}
