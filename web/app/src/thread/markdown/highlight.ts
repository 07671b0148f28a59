/** Colours code, once its languages are there; until then, and for what is too long or unknown, it stays plain. */

import { signal } from "@preact/signals";

type Colour = (code: string, language: string) => string | null;

/** Beyond it colouring takes longer than a frame or two (about 1 MB/s on a phone). */
const MAX_CHARACTERS = 20_000;

/** Null until the languages are loaded. */
export const colour = signal<Colour | null>(null);
let isAsked = false;

/** HTML of the code, or null. Reading it draws again once the languages are loaded. */
export function coloured(code: string, language: string): string | null {
  if (!language || code.length > MAX_CHARACTERS) return null;
  if (colour.value) return colour.value(code, language);
  if (!isAsked) {
    isAsked = true;
    void import("./languages.ts").then(
      (loaded) => (colour.value = loaded.coloured),
      () => (isAsked = false), // offline: plain, until the next one asks
    );
  }
  return null;
}
