/**
 * Detects input that can move a scroll box: wheel, keys, touch, the scroll bar, and a selection that is dragged past the
 * box's edge. A box also moves when the layout changes; `scroll.ts` asks here whether the person has moved the box.
 */

/**
 * After input by wheel, key or finger the box may still glide. Each movement within this time restarts the time, so a
 * long fling counts as input until its end. Chromium scrolls smoothly for about 200 ms after a key; the rest allows for
 * a busy machine.
 */
const GLIDE_MS = 600;

/** Tab, j and k move the focus, and the box follows the focus. */
const KEYS_UP = ["ArrowUp", "PageUp", "Home", "Tab", "j", "k"];
const KEYS_DOWN = ["ArrowDown", "PageDown", "End", "Tab", "j", "k"];

export type Way = "up" | "down";

export class Hands {
  private readonly until: Record<Way, number> = { up: -Infinity, down: -Infinity };
  isOnScrollBar = false;
  private readonly listening = new AbortController();

  /** `onDown` is called when the person scrolls down, even where the box cannot scroll further. */
  constructor(
    private readonly box: HTMLElement,
    private readonly onDown: () => void,
  ) {
    const { signal } = this.listening;
    box.addEventListener("wheel", this.wheel, { passive: true, signal });
    box.addEventListener("touchmove", this.touch, { passive: true, signal });
    box.addEventListener("pointerdown", this.grasp, { signal });
    addEventListener("pointermove", this.release, { passive: true, signal });
    addEventListener("pointerup", this.release, { signal });
    addEventListener("keydown", this.key, { capture: true, signal });
  }

  close(): void {
    this.listening.abort();
  }

  /** Returns whether the person is moving the box in this direction, or has just done so. */
  areMoving(way: Way): boolean {
    return this.isOnScrollBar || this.isSelecting || performance.now() < this.until[way];
  }

  /** Returns whether text in the box is selected. */
  get isSelecting(): boolean {
    const selection = getSelection();
    return !!selection && !selection.isCollapsed && this.box.contains(selection.anchorNode);
  }

  /** Records that the person has moved the box, because the box may glide on. */
  glide(...ways: Way[]): void {
    for (const way of ways) this.until[way] = performance.now() + GLIDE_MS;
  }

  private readonly wheel = (event: WheelEvent) => {
    if (event.ctrlKey) return; // that zooms
    this.glide(event.deltaY > 0 ? "down" : "up");
    if (event.deltaY > 0) this.onDown();
  };

  /** A tap without movement does not count. */
  private readonly touch = () => {
    this.glide("up", "down");
    this.onDown();
  };

  private readonly key = (event: KeyboardEvent) => {
    if (isField(event.target) && event.key !== "Tab") return;
    const isSpace = event.key === " ";
    if (KEYS_UP.includes(event.key) || (isSpace && event.shiftKey)) this.glide("up");
    if (!KEYS_DOWN.includes(event.key) && (!isSpace || event.shiftKey)) return;
    this.glide("down");
    this.onDown();
  };

  /** The scroll bar is the part of the box outside of its content area. */
  private readonly grasp = (event: PointerEvent) => {
    const beside = this.box.getBoundingClientRect().left + this.box.clientLeft + this.box.clientWidth;
    this.isOnScrollBar = event.target === this.box && event.clientX >= beside;
  };

  /** Browsers report the release late or never; the next movement without a pressed button shows the release, too. */
  private readonly release = (event: PointerEvent) => {
    if (!this.isOnScrollBar || (event.type === "pointermove" && event.buttons)) return;
    this.isOnScrollBar = false;
    this.glide("up", "down");
    this.onDown();
  };
}

function isField(target: EventTarget | null): boolean {
  return target instanceof HTMLElement && (target.isContentEditable || target.matches("textarea, select, input:not([type=checkbox], [type=radio])"));
}
