/**
 * A dialog above the page. The browser keeps the focus inside, closes it on Escape and gives the focus back (HTML,
 * `dialog.showModal`).
 */

import type { ComponentChildren } from "preact";
import { useEffect, useId, useRef } from "preact/hooks";

import { IconButton } from "./icon.tsx";
import css from "./dialog.module.css";


export function Dialog({ title, onClose, children, wide }: { title: string; onClose: () => void; children: ComponentChildren; wide?: boolean }) {
  const box = useRef<HTMLDialogElement>(null);
  const heading = useId();
  useEffect(() => {
    box.current?.showModal();
  }, []);
  return (
    <dialog
      ref={box}
      class={wide ? `${css.dialog} ${css.wide}` : css.dialog}
      aria-labelledby={heading}
      onClose={onClose}
      onClick={(event) => event.target === box.current && box.current?.close()}
    >
      <header>
        <h2 id={heading}>{title}</h2>
        <IconButton name="close" label="Close" onClick={() => box.current?.close()} />
      </header>
      <div class={css.dialogBody}>{children}</div>
    </dialog>
  );
}
