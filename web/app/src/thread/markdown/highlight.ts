/** Colours code once its language is loaded. Until then code is plain, as is code that is too long or in an unknown language. */

import { signal } from "@preact/signals";

type Colour = (code: string, language: string) => string | null;

/** Beyond it colouring takes longer than a frame or two (about 1 MB/s on a phone). */
const MAX_CHARACTERS = 20_000;

/** Counts the loaded languages. A component that reads it is drawn again when the next language arrives. */
export const arrivals = signal(0);

let colour: Colour | null = null;
let isAsked = false;

/** HTML of the code, with everything escaped, or null. The calling component is drawn again if the result changes. */
export function coloured(code: string, language: string): string | null {
  if (!language || code.length > MAX_CHARACTERS) return null;
  ask();
  const html = colour?.(code, language) ?? null;
  if (html === null) void arrivals.value;
  return html;
}

function ask(): void {
  if (isAsked) return;
  isAsked = true;
  void import("./languages.ts").then(
    (loaded) => {
      colour = loaded.coloured;
      loaded.onArrival(() => (arrivals.value += 1));
      arrivals.value += 1;
    },
    () => (isAsked = false), // offline: plain, until the next code block tries again
  );
}
