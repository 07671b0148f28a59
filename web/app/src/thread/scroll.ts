/**
 * Where the reader looks: at the end, and then it stays the end whatever grows; or at a place, and then that place stays
 * where it is whatever changes above or below it.
 *
 * The browser's own anchoring is switched off (it is not in every browser, and does nothing at the top of a page). Sizes
 * are observed, so a picture that loads or a message that is put in front is mended before it is painted.
 */

import { signal } from "@preact/signals";

/** Nearer to the end than a line or two is "at the end": people do not scroll by pixels. */
const END_PX = 40;

/** What grows so soon after a press was unfolded by it, and the reader looks at that, not at the end. */
const PRESS_MS = 400;

interface Anchor {
  readonly element: Element;
  /** Below the upper edge of the box, in pixels. */
  readonly top: number;
}

/** Where a reader was: a message and how far below the edge it stood. */
export interface Place {
  readonly id: string;
  readonly top: number;
}

export class ScrollKeeper {
  readonly isAtEnd = signal(true);
  /** What is drawn ends before the conversation does: its end is not the end. */
  isPartial = false;
  private anchor: Anchor | null = null;
  private pressedAt = -Infinity;
  /** Where the box stood when it was last looked at. */
  private top = 0;
  private readonly sizes = new ResizeObserver(() => this.keep());

  constructor(
    private readonly box: HTMLElement,
    private readonly content: HTMLElement,
  ) {
    box.addEventListener("scroll", this.look, { passive: true });
    content.addEventListener("pointerdown", this.press);
    content.addEventListener("keydown", this.press);
    this.sizes.observe(box);
    this.sizes.observe(content);
  }

  close(): void {
    this.box.removeEventListener("scroll", this.look);
    this.content.removeEventListener("pointerdown", this.press);
    this.content.removeEventListener("keydown", this.press);
    this.sizes.disconnect();
  }

  toEnd(): void {
    this.pressedAt = -Infinity;
    this.isPartial = false;
    this.isAtEnd.value = true;
    this.box.scrollTop = this.box.scrollHeight;
    this.top = this.box.scrollTop;
  }

  /** Brings a message to where a reader left it, or under the upper edge. False: it is not here. */
  toPlace({ id, top }: Place): boolean {
    const element = document.getElementById(`m-${id}`);
    if (!element || !this.content.contains(element)) return false;
    this.isAtEnd.value = false;
    this.anchor = { element, top };
    this.keep();
    this.look();
    return true;
  }

  /** Null at the end. */
  get place(): Place | null {
    if (this.isAtEnd.peek()) return null;
    const article = this.anchor?.element.closest("article");
    return article ? { id: article.id.slice(2), top: this.below(article) } : null;
  }

  /** What was to stay has stayed; called after every change of sizes, and when messages were put in front. */
  keep(): void {
    // A reader who has just scrolled away is told of after the sizes that change in the same frame.
    if (this.box.scrollTop < this.top - 1 && this.isAtEnd.peek()) this.look();
    const isUnfolding = performance.now() - this.pressedAt < PRESS_MS;
    if (this.isAtEnd.peek() && !isUnfolding) {
      this.box.scrollTop = this.box.scrollHeight;
    } else if (this.anchor?.element.isConnected) {
      const moved = this.below(this.anchor.element) - this.anchor.top;
      if (Math.abs(moved) >= 1) this.box.scrollTop += moved;
    }
    this.top = this.box.scrollTop;
  }

  private readonly press = () => {
    this.pressedAt = performance.now();
    this.remember();
  };

  private readonly look = () => {
    const below = this.box.scrollHeight - this.box.scrollTop - this.box.clientHeight;
    this.isAtEnd.value = !this.isPartial && below <= END_PX;
    this.top = this.box.scrollTop;
    this.remember();
  };

  /** The first block of the first message that is in sight. */
  private remember(): void {
    const article = this.firstInSight([...this.content.querySelectorAll(":scope article")]);
    const block = article && this.firstInSight([...article.querySelectorAll("[data-block]")]);
    const element = block ?? article;
    this.anchor = element ? { element, top: this.below(element) } : null;
  }

  private firstInSight(elements: Element[]): Element | undefined {
    const edge = this.box.getBoundingClientRect().top;
    let from = 0;
    for (let to = elements.length; from < to; ) {
      const middle = (from + to) >> 1;
      if ((elements[middle] as Element).getBoundingClientRect().bottom > edge) to = middle;
      else from = middle + 1;
    }
    return elements[from];
  }

  private below(element: Element): number {
    return element.getBoundingClientRect().top - this.box.getBoundingClientRect().top;
  }
}
