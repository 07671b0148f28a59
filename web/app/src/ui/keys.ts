/**
 * Maps key presses to actions. Pure.
 *
 * Single letters work only while the person is not writing, and can be switched off (WCAG 2.1.4). Menus, dialogs and
 * fields handle their keys first; the list of chats handles Ctrl+K and Ctrl+Shift+O.
 */

export type Wish = "shortcuts" | "search" | "write" | "developer" | "travel" | "next" | "previous" | "leave";

export interface Press {
  readonly key: string;
  readonly ctrlKey: boolean;
  readonly metaKey: boolean;
  readonly altKey: boolean;
  /** Whether a pressed key would be written into a field. */
  readonly isWriting: boolean;
}

const SINGLE: Readonly<Record<string, Wish>> = {
  "?": "shortcuts",
  "/": "search",
  c: "write",
  d: "developer",
  t: "travel",
  j: "next",
  k: "previous",
};

export function wishOf(press: Press, hasSingleKeys = true): Wish | null {
  const { key, ctrlKey, metaKey, altKey, isWriting } = press;
  if (key === "Escape") return "leave";
  if (altKey && !ctrlKey && !metaKey && !isWriting && key === "ArrowDown") return "next";
  if (altKey && !ctrlKey && !metaKey && !isWriting && key === "ArrowUp") return "previous";
  if (ctrlKey || metaKey || altKey || isWriting || !hasSingleKeys) return null;
  return SINGLE[key] ?? null;
}
