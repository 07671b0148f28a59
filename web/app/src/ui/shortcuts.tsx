/** The keys that work everywhere. Which they are is shown by shortcut_list.tsx. */

import { signal } from "@preact/signals";

import { comeBack, isTravelling, travel } from "../drawer/way.tsx";
import { isDrawerOpen, isNarrow, isShortcutsOpen, isSidebarOpen } from "../state/layout.ts";
import { chat, isReady, live } from "../state/session.ts";
import { device } from "../state/storage.ts";
import { wishOf, type Wish } from "./keys.ts";

const KEY = "threadcast.single_keys";
export const hasSingleKeys = signal(device.getItem(KEY) !== "off");

/** Kept in the browser: keys of a letter alone are no help to who speaks to the machine. */
export function setSingleKeys(isOn: boolean): void {
  hasSingleKeys.value = isOn;
  device.setItem(KEY, isOn ? "on" : "off");
}

/** Listens to the whole page, as long as it is there. */
export function heedKeys(): () => void {
  addEventListener("keydown", heed);
  return () => removeEventListener("keydown", heed);
}

function heed(event: KeyboardEvent): void {
  if (event.defaultPrevented || event.isComposing) return;
  if (document.querySelector("dialog[open]")) return; // it has the keys, and closes by itself
  const { key, ctrlKey, metaKey, altKey } = event;
  const isWriting = isField(event.target);
  const wish = wishOf({ key, ctrlKey, metaKey, altKey, isWriting }, hasSingleKeys.peek());
  if (wish && carryOut(wish)) event.preventDefault();
}

function isField(target: EventTarget | null): boolean {
  if (!(target instanceof HTMLElement)) return false;
  if (target instanceof HTMLInputElement) return !["checkbox", "radio", "range", "button"].includes(target.type);
  return target.isContentEditable || target instanceof HTMLTextAreaElement || target instanceof HTMLSelectElement;
}

/** False when there is nothing to be done, so that the key keeps what it means elsewhere. */
function carryOut(wish: Wish): boolean {
  switch (wish) {
    case "shortcuts":
      return (isShortcutsOpen.value = true);
    case "search":
      isSidebarOpen.value = true;
      return focus("nav [type=search]");
    case "write":
      return focus("textarea[aria-label=Message]");
    case "developer":
      isDrawerOpen.value = !isDrawerOpen.value;
      return true;
    case "travel":
      if (!chat.value || !isReady.value || !live.value.position) return false;
      void travel();
      return true;
    case "next":
    case "previous":
      return walk(wish === "next" ? 1 : -1);
    case "leave":
      return leave();
  }
}

/** Escape goes from the outermost thing that stands open to the next. Where nothing does it stops the run, which is the
 * composer's affair. */
function leave(): boolean {
  if (isNarrow.value && isSidebarOpen.value) isSidebarOpen.value = false;
  else if (isDrawerOpen.value && (isNarrow.value || document.activeElement?.closest("aside"))) isDrawerOpen.value = false;
  else if (isTravelling.value) comeBack();
  else return false;
  return true;
}

function walk(step: number): boolean {
  const all = [...document.querySelectorAll<HTMLElement>("main article")];
  const at = all.findIndex((message) => message.contains(document.activeElement));
  const to = all[at < 0 ? (step > 0 ? 0 : all.length - 1) : at + step];
  if (!to) return false;
  to.tabIndex = -1;
  to.focus({ preventScroll: true });
  to.scrollIntoView({ block: "nearest" });
  return true;
}

function focus(selector: string): boolean {
  // After what was just opened is drawn, and before the next key is read.
  queueMicrotask(() => document.querySelector<HTMLElement>(selector)?.focus());
  return true;
}
