/** Copies text to the clipboard, also where the page may not use the clipboard's API: without https, or in a frame. */

import { notify } from "../state/session.ts";

/** Copies a text, and shows a notice with the result. */
export async function copy(text: string): Promise<void> {
  if (await copied(text)) notify("Copied", { isHarmless: true });
  else notify("This browser does not let the page copy; select the text instead.");
}

/** Copies a text, for buttons that show the result themselves. Returns false if the text could not be copied. */
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
