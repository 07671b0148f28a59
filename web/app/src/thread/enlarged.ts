/** The picture of the conversation that somebody wants to see large: one at a time, above the page. */

import { signal } from "@preact/signals";

export const enlarged = signal<{ src: string; alt: string } | null>(null);

export function enlarge(src: string, alt: string): void {
  enlarged.value = { src, alt };
}
