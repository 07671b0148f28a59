/**
 * While an answer grows, the text after a diagram waits until the diagram is drawn. The source of the diagram is shown
 * meanwhile, and then replaced by a picture of any height; no text below the picture can move.
 */

import { useRef, useState } from "preact/hooks";

import { sizes } from "./sizes.ts";
import { fenceOf } from "./split.ts";

/**
 * The longest wait of an answer for all of its diagrams. A diagram takes some tenths of a second, and seconds on an
 * overloaded machine; loading Mermaid starts with the first line of a source. After the wait the text continues, and a
 * diagram that is not drawn yet keeps the height of its source.
 */
export const WAIT_MS = 5_000;

/** Decides which diagram an answer waits for. */
export class Wait {
  /** The index of the block of the awaited diagram; Infinity if there is none. */
  awaited = Infinity;
  private looked: number;
  private leftMs = WAIT_MS;

  /**
   * `wasGrowing` says whether the answer was growing when it was first shown; in other answers the reader may be
   * anywhere, so no text waits. `draw` resolves when a diagram is drawn or cannot be drawn. `isKnown` returns whether
   * the size of its picture is known. `over` is called when the wait for a diagram ends.
   */
  constructor(
    private wasGrowing: boolean,
    private readonly draw: (source: string) => Promise<unknown>,
    private readonly isKnown: (source: string) => boolean,
    private readonly over: () => void,
  ) {
    this.looked = wasGrowing ? 0 : Infinity;
  }

  /** Compares the present blocks of the answer with the awaited diagram, and continues or ends the wait. */
  take(blocks: readonly string[], isGrowing: boolean): void {
    if (this.looked === Infinity) this.looked = blocks.length;
    this.looked = Math.min(this.looked, blocks.length);
    for (; this.awaited === Infinity && this.looked < blocks.length; this.looked += 1) {
      const fence = fenceOf(blocks[this.looked] as string);
      const isOpen = isGrowing && this.looked === blocks.length - 1;
      if (isOpen && !fence?.isClosed) break; // the block may still become a diagram
      if (!this.wasGrowing || this.leftMs <= 0 || fence?.language !== "mermaid" || this.isKnown(fence.code)) continue;
      this.begin(this.looked, fence.code);
    }
    this.wasGrowing = isGrowing;
  }

  private begin(at: number, source: string): void {
    this.awaited = at;
    const began = performance.now();
    const end = () => {
      clearTimeout(late);
      if (this.awaited !== at) return;
      this.awaited = Infinity;
      this.leftMs -= performance.now() - began;
      this.over();
    };
    const late = setTimeout(end, this.leftMs);
    this.draw(source).then(end, end);
  }
}

/** The index of the block of the awaited diagram; Infinity if there is none. */
export function useAwaited(blocks: readonly string[], isGrowing: boolean, draw: (source: string) => Promise<unknown>): number {
  const [, drawAgain] = useState(0);
  const wait = useRef<Wait | null>(null);
  wait.current ??= new Wait(isGrowing, draw, (source) => sizes.of(source) !== null, () => drawAgain((count) => count + 1));
  wait.current.take(blocks, isGrowing);
  return wait.current.awaited;
}
