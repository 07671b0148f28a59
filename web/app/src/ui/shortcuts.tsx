/** Handles the keys that work everywhere. shortcut_list.tsx lists them. */

import { signal } from "@preact/signals";

import { comeBack, isTravelling, travel } from "../drawer/way.tsx";
import { isDrawerOpen, isNarrow, isShortcutsOpen, isSidebarOpen } from "../state/layout.ts";
import { chat, isReady, live } from "../state/session.ts";
import { device } from "../state/storage.ts";
import { wishOf, type Wish } from "./keys.ts";

const KEY = "threadcast.single_keys";
export const hasSingleKeys = signal(device.getItem(KEY) !== "off");

/** Stored in the browser. Single-letter keys disturb people who dictate. */
export function setSingleKeys(isOn: boolean): void {
  hasSingleKeys.value = isOn;
  device.setItem(KEY, isOn ? "on" : "off");
}

/** Handles the keys of the whole page. */
export function heedKeys(): () => void {
  addEventListener("keydown", heed);
  return () => removeEventListener("keydown", heed);
}

function heed(event: KeyboardEvent): void {
  if (event.defaultPrevented || event.isComposing) return;
  if (document.querySelector("dialog[open]")) return; // the dialog handles its own keys
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

/** Carries out an action. Returns false if there is nothing to do, so that the browser handles the key. */
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

/** Escape closes the topmost open part. If no part is open, the message box stops the run. */
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
  // Runs after the opened part is drawn, and before the next key is read.
  queueMicrotask(() => document.querySelector<HTMLElement>(selector)?.focus());
  return true;
}
