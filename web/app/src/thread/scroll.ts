/**
 * Where the reader looks: at the end, and then it stays the end whatever grows; or at a place, and then that place stays
 * where it is whatever changes above or below it.
 * Only the person ends the following, by moving the box up (`hands.ts`), by selecting text or by unfolding something.
 * Layout changes, such as a panel that opens, a picture that loads or a keyboard that appears, never end it: a scroll
 * event says that the box has moved, but not why, and the sizes may have changed in the same frame.
 *
 * The browser's own anchoring is switched off (it is not in every browser, and does nothing at the top of a page). Sizes
 * are observed, so a picture that loads or a message that is put in front is mended before it is painted.
 */

import { signal } from "@preact/signals";

import { Hands } from "./hands.ts";

/** Scrolling to within a line or two of the end counts as going to the end: people do not scroll by pixels. */
const END_PX = 40;

/** What grows so soon after a press was unfolded by it, and the reader looks at that, not at the end. */
const PRESS_MS = 400;

/** Elements that unfold when they are pressed. */
const UNFOLDS = "summary, [data-unfolds]";

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

/** The measures of the box at the last look, in pixels. */
interface Sight {
  readonly top: number;
  readonly height: number;
  readonly contentHeight: number;
}

export class ScrollKeeper {
  /** The end is in sight or will be, so no button to the end is needed. */
  readonly isAtEnd = signal(true);
  /** What is drawn ends before the conversation does: its end is not the end. */
  isPartial = false;
  private isFollowing = true;
  private anchor: Anchor | null = null;
  private pressedAt = -Infinity;
  private isUnfolding = false;
  /** How far down the box could go when the person last asked to go further down. */
  private endAsked = Infinity;
  private seen: Sight;
  private readonly hands: Hands;
  private readonly listening = new AbortController();
  private readonly sizes = new ResizeObserver(() => this.keep());

  constructor(
    private readonly box: HTMLElement,
    private readonly content: HTMLElement,
  ) {
    const { signal } = this.listening;
    this.hands = new Hands(box, this.askDown);
    this.seen = this.sight;
    box.addEventListener("scroll", this.look, { passive: true, signal });
    content.addEventListener("pointerdown", this.press, { signal });
    content.addEventListener("keydown", this.pressKey, { signal });
    document.addEventListener("selectionchange", this.select, { signal });
    this.sizes.observe(box);
    this.sizes.observe(content);
  }

  close(): void {
    this.listening.abort();
    this.hands.close();
    this.sizes.disconnect();
  }

  toEnd(): void {
    this.pressedAt = -Infinity;
    this.isPartial = false;
    this.isFollowing = true;
    this.box.scrollTop = this.box.scrollHeight;
    this.remark();
  }

  /** Brings a message to where a reader left it, or under the upper edge. False: it is not here. */
  toPlace({ id, top }: Place): boolean {
    const element = document.getElementById(`m-${id}`);
    if (!element || !this.content.contains(element)) return false;
    this.isFollowing = false;
    this.anchor = { element, top };
    this.keep();
    this.remember();
    return true;
  }

  /** Null for a reader who follows the end. */
  get place(): Place | null {
    if (this.isFollowing) return null;
    const article = this.anchor?.element.closest("article");
    return article ? { id: article.id.slice(2), top: this.below(article) } : null;
  }

  /** What was to stay has stayed; called after every change of sizes, and when messages were put in front. */
  keep(): void {
    this.look(); // the scroll event for a movement in the same frame may come later
    const isPressed = performance.now() - this.pressedAt < PRESS_MS;
    if (this.isFollowing && !isPressed) {
      this.box.scrollTop = this.box.scrollHeight;
    } else if (this.anchor?.element.isConnected) {
      const moved = this.below(this.anchor.element) - this.anchor.top;
      if (Math.abs(moved) >= 1) this.box.scrollTop += moved;
      if (isPressed && this.isUnfolding && this.fromEnd > END_PX) this.isFollowing = false;
    } else this.remember();
    this.remark();
  }

  /** The box has moved: by the person, by this keeper (then it is where it was put), or by the layout. */
  private readonly look = () => {
    const { seen, sight } = this;
    const moved = sight.top - seen.top;
    if (Math.abs(moved) < 1) return;
    const isSameLayout = sight.height === seen.height && sight.contentHeight === seen.contentHeight;
    // Without a layout change only a person moves the box, or a tool for the person: search in the page, a screen reader.
    const way = moved > 0 ? "down" : "up";
    if (!this.hands.areMoving(way) && !isSameLayout) return;
    this.hands.glide(way);
    const { anchor, isFollowing } = this;
    if (way === "down") this.isFollowing ||= !this.isPartial && this.isWhereAsked;
    else if (this.fromEnd > 1) this.leave(); // else the content became shorter
    // The present places of the blocks mislead: content was added above in this frame, and `keep` has not run yet.
    if (!isSameLayout && !isFollowing && anchor) this.anchor = { ...anchor, top: anchor.top - moved };
    else this.remember();
    this.remark();
  };

  private readonly askDown = () => {
    this.endAsked = this.box.scrollHeight - this.box.clientHeight;
    this.followFromEnd();
  };

  /**
   * Whether the box is at the end: the present end, the end as last drawn, or the end when the person began to scroll,
   * since the end moves away while an answer grows. */
  private get isWhereAsked(): boolean {
    if (this.fromEnd <= END_PX) return true;
    const drawn = this.seen.contentHeight - this.seen.height;
    const asked = this.hands.isOnScrollBar ? drawn : Math.min(drawn, this.endAsked);
    return this.hands.areMoving("down") && this.box.scrollTop >= asked - END_PX;
  }

  /** If the box cannot go further down, no scroll event shows that the person wants to follow. */
  private followFromEnd(): void {
    if (!this.isPartial && this.fromEnd <= 1) this.isFollowing = true;
  }

  private readonly press = (event: Event) => {
    this.pressedAt = performance.now();
    this.isUnfolding = (event.target as Element).closest(UNFOLDS) !== null;
    this.remember();
  };

  private readonly pressKey = (event: KeyboardEvent) => {
    if (event.key === "Enter" || event.key === " ") this.press(event);
  };

  /** Selected text stays under the pointer. Once nothing is selected any more, the end is followed again if it is in sight. */
  private readonly select = () => {
    if (this.hands.isSelecting) {
      if (!this.isFollowing) return;
      this.leave();
      this.remember();
    } else this.followFromEnd();
  };

  private leave(): void {
    this.isFollowing = false;
    this.endAsked = Infinity;
  }

  private get fromEnd(): number {
    return this.box.scrollHeight - this.box.scrollTop - this.box.clientHeight;
  }

  private get sight(): Sight {
    const { scrollTop, clientHeight, scrollHeight } = this.box;
    return { top: scrollTop, height: clientHeight, contentHeight: scrollHeight };
  }

  private remark(): void {
    this.seen = this.sight;
    this.isAtEnd.value = this.isFollowing || (!this.isPartial && this.fromEnd <= END_PX);
  }

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
