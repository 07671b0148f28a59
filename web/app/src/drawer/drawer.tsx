/** The developer's drawer, whose contents are loaded when it is first opened; what it shows is recorded from the start. */

import { signal } from "@preact/signals";
import type { ComponentType } from "preact";
import { useEffect, useRef } from "preact/hooks";

import { isDrawerOpen } from "../state/layout.ts";
import { notify } from "../state/session.ts";
import { IconButton } from "../ui/icon.tsx";

import "./drawer.css";
import "./record.ts";

const contents = signal<ComponentType | null>(null);

export function Drawer() {
  return isDrawerOpen.value ? <Opened /> : null;
}

function Opened() {
  const box = useRef<HTMLElement>(null);
  useEffect(() => {
    const before = document.activeElement;
    box.current?.querySelector("button")?.focus();
    import("./contents.tsx").then(
      (loaded) => (contents.value = loaded.Contents),
      () => notify("The drawer could not be loaded. Is the server there? Reload the page to try again."),
    );
    return () => before instanceof HTMLElement && before.focus();
  }, []);
  const Contents = contents.value;
  return (
    <aside class="drawer" aria-label="Developer" ref={box}>
      <header>
        <h2>Developer</h2>
        <IconButton name="close" label="Close the drawer" onClick={() => (isDrawerOpen.value = false)} />
      </header>
      {Contents && <Contents />}
    </aside>
  );
}
