/** Estimates the height of a diagram from its source, before it is drawn. Pure. */

const MIN_PX = 120;
const MAX_PX = 600;

/**
 * The typical height of diagrams of other kinds, such as pie, gantt, mindmap, class and state; their height cannot be
 * estimated from the source.
 */
const OTHER_PX = 340;

/** The height of one layer of a vertical flowchart with letters of 15 px, including the space below it. */
const LAYER_PX = 100;

/** The height of a horizontal flowchart (LR or RL), which is mostly two boxes high. */
const HORIZONTAL_PX = 190;

/** Returns the height in CSS pixels, including the space around the diagram. */
export function heightOf(source: string): number {
  const lines = source.split("\n").map((line) => line.trim());
  const kind = lines.find((line) => line && !/^(?:---|%%|[\w ]+:)/.test(line)) ?? "";
    // On average two of three arrows lead to a new layer.
  if (/^(?:flowchart|graph)\b/.test(kind)) return bounded(/LR|RL/.test(kind) ? HORIZONTAL_PX : LAYER_PX * (1 + (2 * lines.filter((line) => /--|==/.test(line)).length) / 3));
  if (/^sequenceDiagram\b/.test(kind)) return bounded(190 + 48 * lines.filter((line) => /->|-\)|-x|^note\b/i.test(line)).length);
  return OTHER_PX;
}

function bounded(height: number): number {
  return Math.max(MIN_PX, Math.min(MAX_PX, height));
}
