/**
 * Keeps the reader's place: a reader at the end stays at the end while the content grows, and a reader elsewhere sees
 * the same place whatever changes above or below. The box stops following the end only when the person moves it up
 * (`hands.ts`), selects text or unfolds an element. Layout changes, such as a panel that opens, a picture that loads or
 * a keyboard that appears, never cause this: a scroll event says that the box has moved, but not why, and the sizes may
 * have changed in the same frame.
 *
 * The browser's own anchoring is switched off (it is not in every browser, and does nothing at the top of a page).
 * Sizes are observed, so the position is corrected before a loaded picture or a message added above is painted.
 */

import { signal } from "@preact/signals";

import { Hands } from "./hands.ts";

/**
 * Scrolling to within a line or two of the end counts as scrolling to the end, because people do not scroll by pixels.
 */
const END_PX = 40;

/**
 * Content that grows within this time after a click was unfolded by the click, so the reader looks at this content and
 * not at the end.
 */
const PRESS_MS = 400;

/** Elements that unfold when they are clicked. */
const UNFOLDS = "summary, [data-unfolds]";

/**
 * A bubbling event of an element that has just changed its own height. The position is corrected before the browser's
 * layout; Chromium counts a later correction by the observer as a layout shift, although it is never painted.
 */
const SETTLED = "threadcast:settled";

export function tellSettled(element: Element): void {
  element.dispatchEvent(new Event(SETTLED, { bubbles: true }));
}

interface Anchor {
  readonly element: Element;
  /** The distance from the upper edge of the box, in pixels. */
  readonly top: number;
}

/** A reader's place: a message and its distance from the upper edge. */
export interface ScrollPosition {
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
  /** Whether the end is followed or in sight, so that no button to the end is needed. */
  readonly isAtEnd = signal(true);
  /** Whether messages at the end of the conversation are not drawn. */
  isPartial = false;
  private isFollowing = true;
  private anchor: Anchor | null = null;
  private pressedAt = -Infinity;
  private isUnfolding = false;
  /**
   * The scroll position of the end when the person last scrolled down. Infinity if the person left the end and has not
   * scrolled down since.
   */
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
    content.addEventListener(SETTLED, () => this.keep(), { signal });
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
    this.box.scrollTop = this.end;
    this.remark();
  }

  /**
   * Scrolls a message to `top` pixels below the upper edge, and stops following the end. Returns false if the message
   * is not drawn.
   */
  toScrollPosition({ id, top }: ScrollPosition): boolean {
    const element = document.getElementById(`m-${id}`);
    if (!element || !this.content.contains(element)) return false;
    this.isFollowing = false;
    this.anchor = { element, top };
    this.keep();
    this.remember();
    return true;
  }

  /**
   * Returns the message at the upper edge, for `toScrollPosition`; null while the end is followed or no message is
   * drawn.
   */
  get scrollPosition(): ScrollPosition | null {
    if (this.isFollowing) return null;
    const article = this.anchor?.element.closest("article");
    return article ? { id: article.id.slice(2), top: this.below(article) } : null;
  }

  /** Moves the box so that the end or the anchor stays in place. Call this method after every change of sizes. */
  keep(): void {
    this.look(); // the scroll event for a movement in the same frame may come later
    const isPressed = performance.now() - this.pressedAt < PRESS_MS;
    if (this.isFollowing && !isPressed) {
      this.box.scrollTop = this.end;
    } else if (this.anchor?.element.isConnected) {
      const moved = this.below(this.anchor.element) - this.anchor.top;
      if (Math.abs(moved) >= 1) this.box.scrollTop += moved;
      if (isPressed && this.isUnfolding && this.fromEnd > END_PX) this.isFollowing = false;
    } else this.remember();
    this.remark();
  }

  /**
   * Handles a movement of the box since the last look. Movements that this class has caused were recorded by `remark`,
   * and `keep` handles movements that the layout has caused. When the person moves the box, the method starts or stops
   * following the end, or chooses another anchor.
   */
  private readonly look = () => {
    const { seen, sight } = this;
    const moved = sight.top - seen.top;
    if (Math.abs(moved) < 1) return;
    const isSameLayout = sight.height === seen.height && sight.contentHeight === seen.contentHeight;
    // Without a layout change only a person moves the box, or a tool for the person: search in the page, or a screen
    // reader.
    const way = moved > 0 ? "down" : "up";
    if (!this.hands.areMoving(way) && !isSameLayout) return;
    this.hands.glide(way);
    const { anchor, isFollowing } = this;
    if (way === "down") this.isFollowing ||= !this.isPartial && this.hasReachedEnd;
    else if (this.fromEnd > 1) this.leave(); // else the content has become shorter
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
   * Whether a movement down has reached the present end, or the nearest end that the person saw during the movement.
   * The present end moves away while an answer grows.
   */
  private get hasReachedEnd(): boolean {
    if (this.fromEnd <= END_PX) return true;
    return this.hands.areMoving("down") && this.box.scrollTop >= this.endInView - END_PX;
  }

  /**
   * The scroll position of the end as last drawn; for wheel, keys and touch at most the position of the end at the time
   * of that input.
   */
  private get endInView(): number {
    const drawn = this.seen.contentHeight - this.seen.height;
    return this.hands.isOnScrollBar ? drawn : Math.min(drawn, this.endAsked);
  }

  /** Starts following if the box is at its very end, where scrolling down causes no scroll event. */
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

  /** Selected text stays under the pointer. When the selection ends, the end is followed again if it is in sight. */
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

  /**
   * The scroll position of the end; before the first message that of the top, because a start screen is read from
   * there.
   */
  private get end(): number {
    return this.content.querySelector("article") ? this.box.scrollHeight : 0;
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

  /**
   * Makes the first visible block of the first visible message the anchor, or this message if no block of it is
   * visible.
   */
  private remember(): void {
    const article = this.firstInSight([...this.content.querySelectorAll(":scope article")]);
    const block = article && this.firstInSight([...article.querySelectorAll("[data-block]")]);
    const element = block ?? article;
    this.anchor = element ? { element, top: this.below(element) } : null;
  }

  /** Returns the first of these elements, in document order, whose lower edge is below the upper edge of the box. */
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
