/**
 * Remembers the sizes of the pictures of diagrams in this browser, over reloads. A diagram that was drawn here before
 * gets a box of the right size before it is drawn again.
 */

import { attempt, type Store } from "../../state/safe_store.ts";
import { person } from "../../state/storage.ts";

/** In CSS pixels. */
export interface Size {
  readonly width: number;
  readonly height: number;
}

/** The number of remembered sizes, which take at most 8 kB in the browser's storage. */
const KEPT = 200;

type Entry = readonly [name: string, width: number, height: number];

export class Sizes {
  /** The sizes by the hash of the source, the newest last. */
  private known: Map<string, Size> | null = null;

  constructor(
    private readonly store: Store,
    private readonly key: string,
  ) {}

  /** Returns the size of the picture of this source; null if it is not known. */
  of(source: string): Size | null {
    this.known ??= this.stored();
    return this.known.get(nameOf(source)) ?? null;
  }

  /** Stores a size. Other tabs store sizes too, so the stored sizes are read again first. */
  add(source: string, { width, height }: Size): void {
    const name = nameOf(source);
    const old = this.of(source);
    if (old?.width === width && old.height === height) return;
    const known = (this.known = new Map([...this.stored(), ...(this.known ?? [])]));
    known.delete(name);
    known.set(name, { width, height });
    for (const other of [...known.keys()].slice(0, -KEPT)) known.delete(other);
    const entries: Entry[] = [...known].map(([each, size]) => [each, size.width, size.height]);
    this.store.setItem(this.key, JSON.stringify(entries));
  }

  /** Returns the stored sizes; an empty map if the stored sizes cannot be read. Entries without a size are left out. */
  private stored(): Map<string, Size> {
    const entries = attempt(() => (JSON.parse(this.store.getItem(this.key) ?? "[]") as Entry[]).filter(([, width, height]) => width > 0 && height > 0));
    return new Map(entries?.map(([name, width, height]) => [name, { width: +width, height: +height }]));
  }
}

/**
 * Returns the length of the source, followed by its 32-bit FNV-1a hash (http://www.isthe.com/chongo/tech/comp/fnv/). A collision
 * gives a box a wrong size.
 */
function nameOf(source: string): string {
  let value = 0x811c9dc5;
  for (let at = 0; at < source.length; at += 1) value = Math.imul(value ^ source.charCodeAt(at), 0x01000193);
  return [source.length, value].join();
}

export const sizes = new Sizes(person, "threadcast.diagrams");
