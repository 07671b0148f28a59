/** Text to the clipboard, also where the page may not use the clipboard's API: without https, in a frame. */

import { notify } from "../state/session.ts";

/** Copies, and says what came of it. */
export async function copy(text: string): Promise<void> {
  if (await copied(text)) notify("Copied", { isHarmless: true });
  else notify("This browser does not let the page copy; select the text instead.");
}

/** Copies; false where that did not work. For buttons that say so themselves. */
export async function copied(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return copiedByCommand(text);
  }
}

function copiedByCommand(text: string): boolean {
  const before = document.activeElement as HTMLElement | null;
  const box = document.createElement("textarea");
  box.value = text;
  box.setAttribute("aria-hidden", "true");
  box.style.cssText = "position:fixed;opacity:0";
  document.body.append(box);
  box.select();
  try {
    return document.execCommand("copy");
  } catch {
    return false;
  } finally {
    box.remove();
    before?.focus({ preventScroll: true });
  }
}
