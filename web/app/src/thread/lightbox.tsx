/** One picture, as large as the window allows. */

import { signal } from "@preact/signals";

import { Dialog } from "../ui/dialog.tsx";

const shown = signal<{ src: string; alt: string } | null>(null);

export function enlarge(src: string, alt: string): void {
  shown.value = { src, alt };
}

export function Lightbox() {
  const picture = shown.value;
  if (!picture) return null;
  return (
    <Dialog title={picture.alt || "Image"} wide onClose={() => (shown.value = null)}>
      <img class="enlarged" src={picture.src} alt={picture.alt} />
    </Dialog>
  );
}
