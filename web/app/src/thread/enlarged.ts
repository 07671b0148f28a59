/** The picture that is shown enlarged above the page; only one picture is shown at a time. */

import { signal } from "@preact/signals";

interface Enlarged {
  readonly src: string;
  readonly alt: string;
  /**
   * A drawing is shown in its own size and scrolls, so that its text can be read; a photograph is fitted into the
   * window.
   */
  readonly isDrawing: boolean;
}

export const enlarged = signal<Enlarged | null>(null);

export function enlarge(src: string, alt: string, isDrawing = false): void {
  enlarged.value = { src, alt, isDrawing };
}
