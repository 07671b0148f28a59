/**
 * Colours code once its language is loaded. Until then code is shown without colours. Code that is too long or in an
 * unknown language stays without colours.
 */

import { signal } from "@preact/signals";

import { once } from "../../ui/once.ts";

type Colour = (code: string, language: string) => string | null;

/** Colouring longer code would take more than a frame or two (about 1 MB/s on a phone). */
const MAX_CHARACTERS = 20_000;

/** Counts the loaded languages. A component that reads this signal is drawn again when the next language arrives. */
export const arrivals = signal(0);

let colour: Colour | null = null;

/**
 * Returns the coloured code as HTML with all text escaped, or null. The calling component is drawn again if the result
 * changes.
 */
export function coloured(code: string, language: string): string | null {
  if (!language || code.length > MAX_CHARACTERS) return null;
  ask();
  const html = colour?.(code, language) ?? null;
  if (html === null) void arrivals.value;
  return html;
}

/** After a failed load, code stays plain until the next code block tries again. */
const ask = once(async () => {
  const loaded = await import("./languages.ts");
  colour = loaded.coloured;
  loaded.onArrival(() => (arrivals.value += 1));
  arrivals.value += 1;
});
