/**
 * The lines of the event log as a value: blocks of lines, of which only the last is ever another, so that a view draws
 * what has come and leaves the rest. Pure. How a line is said stands in lines.ts, which comes with the drawer.
 */

export interface Line {
  readonly number: number;
  /** Milliseconds since the epoch, by this clock. */
  readonly at: number;
  /** An event, or what is said of the connection. */
  readonly kind: "event" | "note";
  readonly type: string;
  /** Null for what has none: transient frames, notes. */
  readonly position: number | null;
  /** Of a note: the sentence. */
  readonly text: string;
  /** Of an event: it, as it came; null when it is not kept any more. */
  readonly body: object | null;
}

export interface Log {
  readonly blocks: readonly (readonly Line[])[];
  readonly count: number;
}

export const NOTHING: Log = { blocks: [], count: 0 };

const BLOCK_LINES = 100;
/** Two thousand: ten seconds of a fast answer, every event of a short chat. */
const BLOCKS_MAX = 20;
/** A snapshot of a long chat is megabytes. */
const SNAPSHOTS_MAX = 3;

export function added(log: Log, line: Omit<Line, "number">): Log {
  const numbered = { ...line, number: log.count };
  const last = log.blocks.at(-1);
  const isFull = !last || last.length >= BLOCK_LINES;
  const blocks = isFull ? [...log.blocks, [numbered]] : [...log.blocks.slice(0, -1), [...last, numbered]];
  if (blocks.length > BLOCKS_MAX) blocks.shift();
  return { blocks: line.type === "snapshot" ? withoutOldSnapshots(blocks) : blocks, count: log.count + 1 };
}

function withoutOldSnapshots(blocks: (readonly Line[])[]): (readonly Line[])[] {
  const kept = blocks.flat().filter((line) => line.type === "snapshot" && line.body);
  const old = new Set(kept.slice(0, -SNAPSHOTS_MAX));
  if (!old.size) return blocks;
  return blocks.map((block) => (block.some((line) => old.has(line)) ? block.map((line) => (old.has(line) ? { ...line, body: null } : line)) : block));
}
