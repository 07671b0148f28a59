/**
 * A button that opens a list of actions. Arrow keys move through the list; Escape and a click outside close it. The
 * list covers all scrolling content, and opens on the side of its button that has more room.
 */

import { useLayoutEffect, useRef, useState } from "preact/hooks";

import { Icon, type IconName } from "./icon.tsx";

export interface MenuItem {
  label: string;
  icon?: IconName;
  onSelect: () => void;
  isDangerous?: boolean;
}

export function Menu({ label, icon = "more", items }: { label: string; icon?: IconName; items: readonly MenuItem[] }) {
  const [isOpen, setOpen] = useState(false);
  const root = useRef<HTMLDivElement>(null);
  const list = useRef<HTMLDivElement>(null);
  const entries = () => [...(root.current?.querySelectorAll<HTMLElement>("[role=menuitem]") ?? [])];

  useLayoutEffect(() => {
    if (!isOpen) return;
    const place = () => root.current && list.current && placed(list.current, root.current.getBoundingClientRect());
    place();
    addEventListener("scroll", place, { capture: true, passive: true });
    addEventListener("resize", place);
    return () => {
      removeEventListener("scroll", place, { capture: true });
      removeEventListener("resize", place);
    };
  }, [isOpen]);

  useLayoutEffect(() => {
    if (!isOpen) return;
    entries()[0]?.focus();
    const close = (event: Event) => {
      if (!root.current?.contains(event.target as Node)) setOpen(false);
    };
    document.addEventListener("pointerdown", close);
    document.addEventListener("focusin", close);
    return () => {
      document.removeEventListener("pointerdown", close);
      document.removeEventListener("focusin", close);
    };
  }, [isOpen]);

  const leave = () => {
    setOpen(false);
    root.current?.querySelector<HTMLElement>("button")?.focus();
  };
  const walk = (event: KeyboardEvent) => {
    const all = entries();
    const at = all.indexOf(document.activeElement as HTMLElement);
    const to = { ArrowDown: at + 1, ArrowUp: at - 1 + all.length, Home: 0, End: all.length - 1 }[event.key];
    if (event.key === "Escape") leave();
    else if (to !== undefined) all[to % all.length]?.focus();
    else return;
    event.preventDefault();
    event.stopPropagation();
  };

  return (
    <div class="menu" ref={root} onKeyDown={isOpen ? walk : undefined}>
      <button type="button" class="icon-button" aria-haspopup="menu" aria-expanded={isOpen} aria-label={label} title={label} onClick={() => setOpen(!isOpen)}>
        <Icon name={icon} />
      </button>
      {isOpen && (
        <div role="menu" aria-label={label} ref={list}>
          {items.map((item) => (
            <button
              key={item.label}
              type="button"
              role="menuitem"
              tabIndex={-1}
              class={item.isDangerous ? "dangerous" : undefined}
              onClick={() => {
                leave();
                item.onSelect();
              }}
            >
              {item.icon && <Icon name={item.icon} />}
              {item.label}
            </button>
          ))}
        </div>
      )}
    </div>
  );
}

/** The distance to the edge of the window, in pixels. */
const MARGIN_PX = 8;

function placed(list: HTMLElement, button: DOMRect): void {
  const { width, height } = list.getBoundingClientRect();
  const isBelow = button.bottom + height + MARGIN_PX <= innerHeight || button.top < height + MARGIN_PX;
  const left = button.left < innerWidth / 2 ? button.left : button.right - width;
  list.style.top = `${isBelow ? button.bottom : button.top - height}px`;
  list.style.left = `${Math.max(MARGIN_PX, Math.min(left, innerWidth - width - MARGIN_PX))}px`;
}
