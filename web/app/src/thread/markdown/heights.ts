/** Estimates the height of a diagram from its source, before it is drawn. Pure. */

const MIN_PX = 120;
const MAX_PX = 600;

/** The height for kinds whose source does not tell: pie, mindmap, class, state and the like are about so high. */
const OTHER_PX = 340;

/** A box with the space below it, in a flowchart, as Mermaid lays it out with letters of 15 px. */
const LAYER_PX = 100;
const NODE_PX = 75;

/** In CSS pixels, with the space around it. */
export function heightOf(source: string): number {
  const lines = source.split("\n").map((line) => line.replace(/%%.*/, "").trim()).filter(Boolean);
  const kind = lines.find((line) => !/^(?:---|[\w ]+:)/.test(line)) ?? "";
  const flow = /^(?:flowchart|graph)\b\s*(TD|TB|BT|LR|RL)?/i.exec(kind);
  if (flow) return bounded(/LR|RL/i.test(flow[1] ?? "") ? layers(lines).width * NODE_PX + 40 : layers(lines).depth * LAYER_PX + 20);
  if (/^sequenceDiagram\b/.test(kind)) return bounded(190 + 48 * lines.filter((line) => /->|-\)|--x|-x|^note\b/i.test(line)).length);
  if (/^gantt\b/.test(kind)) return bounded(110 + 28 * lines.filter((line) => /:/.test(line)).length);
  return OTHER_PX;
}

function bounded(height: number): number {
  return Math.max(MIN_PX, Math.min(MAX_PX, height));
}

const ARROW = /\s*(?:<?[-=~.]{2,}[ox>]?(?:\|[^|]*\|)?|--[^->|]+--+>|-\.[^.]*\.->|==[^=]+==>)\s*/;

/** How many layers a flowchart has, and the most boxes in one. */
function layers(lines: readonly string[]): { depth: number; width: number } {
  const befores = new Map<string, Set<string>>();
  for (const line of lines.slice(1)) {
    const row = line.split(ARROW).map((part) => part.split("&").flatMap((one) => /^[\w-]+/.exec(one.trim()) ?? []));
    if (row.length < 2) continue;
    for (const [at, names] of row.entries()) {
      for (const name of names) befores.set(name, new Set([...(befores.get(name) ?? []), ...(row[at - 1] ?? [])]));
    }
  }
  const known = new Map<string, number>();
  const layerOf = (name: string): number => {
    if (!known.has(name)) {
      known.set(name, 0); // stops at a cycle
      known.set(name, Math.max(-1, ...[...(befores.get(name) ?? [])].map(layerOf)) + 1);
    }
    return known.get(name) as number;
  };
  const counts = new Map<number, number>();
  for (const name of [...befores.keys()].slice(0, MAX_NODES)) counts.set(layerOf(name), (counts.get(layerOf(name)) ?? 0) + 1);
  return { depth: Math.max(1, counts.size), width: Math.max(1, ...counts.values()) };
}

/** The most boxes to count: more than a picture of the largest height can show. */
const MAX_NODES = 200;
