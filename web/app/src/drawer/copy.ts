/** To the clipboard, and a word that it was done. */

import { notify } from "../state/session.ts";

export function copy(text: string): void {
  // Missing on a page that came over plain HTTP from another machine.
  const written = navigator.clipboard ? navigator.clipboard.writeText(text) : Promise.reject(new Error());
  written.then(
    () => notify("Copied", { isHarmless: true }),
    () => notify("This browser does not let the page copy; select the text instead."),
  );
}
