/**
 * The developer's drawer. The drawer's contents are loaded when it is first opened; events are recorded from the start.
 */

import { useLayoutEffect, useRef } from "preact/hooks";

import { isDrawerOpen } from "../state/layout.ts";
import { IconButton } from "../ui/icon.tsx";
import { lazyOf } from "../ui/lazy.tsx";

import "./record.ts";
import css from "./drawer.module.css";

const Contents = lazyOf(() => import("./contents.tsx").then((room) => room.Contents));

export function Drawer() {
  return isDrawerOpen.value ? <Opened /> : null;
}

function Opened() {
  const box = useRef<HTMLElement>(null);
  useLayoutEffect(() => {
    const before = document.activeElement;
    box.current?.querySelector("button")?.focus();
    return () => before instanceof HTMLElement && before.focus();
  }, []);
  return (
    <aside class={css.drawer} aria-label="Developer" ref={box}>
      <header>
        <h2>Developer</h2>
        <IconButton name="close" label="Close the drawer" onClick={() => (isDrawerOpen.value = false)} />
      </header>
      <Contents />
    </aside>
  );
}
