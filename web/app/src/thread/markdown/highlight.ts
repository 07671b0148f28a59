/** Colours code, once its language is there; until then, and for what is too long or unknown, it stays plain. */

import { signal } from "@preact/signals";

type Colour = (code: string, language: string) => string | null;

/** Beyond it colouring takes longer than a frame or two (about 1 MB/s on a phone). */
const MAX_CHARACTERS = 20_000;

/** Counts the languages that have come. Who reads it is drawn again with the next one. */
export const arrivals = signal(0);

let colour: Colour | null = null;
let isAsked = false;

/** HTML of the code, everything in it escaped, or null. While that may still change, what calls this is drawn again when it does. */
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
    () => (isAsked = false), // offline: plain, until the next one asks
  );
}
