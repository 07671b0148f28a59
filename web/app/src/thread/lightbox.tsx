/** Shows one picture, as large as the window allows. */

import { Dialog } from "../ui/dialog.tsx";
import { enlarged } from "./enlarged.ts";
import css from "./thread.module.css";

export function Lightbox() {
  const picture = enlarged.value;
  if (!picture) return null;
  return (
    <Dialog title={picture.alt || "Image"} wide onClose={() => (enlarged.value = null)}>
      {picture.isDrawing ? (
        <div class={css.drawing} tabIndex={0}>
          <img src={picture.src} alt={picture.alt} />
        </div>
      ) : (
        <img class={css.enlarged} src={picture.src} alt={picture.alt} />
      )}
    </Dialog>
  );
}
