/**
 * The lines of the event log as an immutable value: blocks of lines, of which only the last changes, so that a view
 * draws only new lines. Pure. `lines.ts` describes lines in words; it is loaded with the drawer.
 */

export interface Line {
  readonly number: number;
  /** Milliseconds since the epoch, by the clock of this device. */
  readonly at: number;
  /** An event of the chat, or a note about the connection. */
  readonly kind: "event" | "note";
  readonly type: string;
  /** Null for transient frames and notes, which have no position. */
  readonly position: number | null;
  /** The sentence of a note; "" for an event. */
  readonly text: string;
  /** The event as it arrived; null for a note, and for an event that is no longer kept. */
  readonly body: object | null;
}

export interface Log {
  readonly blocks: readonly (readonly Line[])[];
  readonly count: number;
}

export const NOTHING: Log = { blocks: [], count: 0 };

const BLOCK_LINES = 100;
/** Two thousand lines: ten seconds of a fast answer, or every event of a short chat. */
const BLOCKS_MAX = 20;
/** The snapshot of a long chat may have several megabytes. */
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
