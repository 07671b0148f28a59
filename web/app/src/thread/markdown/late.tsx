/**
 * Loads `Markdown` when a chat is opened: it is a third of the page's scripts, and the start screen does not need it.
 */

import { signal } from "@preact/signals";

import { fetched } from "../../ui/lazy.tsx";
import { once } from "../../ui/once.ts";

type Shown = typeof import("./markdown.tsx").Markdown;

/** Undefined until the code is loaded; null if it could not be loaded, and answers are shown as plain text. */
export const shown = signal<Shown | null | undefined>(undefined);

/** Loads the code. This function is called as soon as a chat is chosen, so that code and chat load at the same time.
After a
 * failure the next text tries again. */
export const wantMarkdown = once(async () => {
  shown.value = await fetched(() => import("./markdown.tsx").then((room) => room.Markdown));
  if (!shown.value) throw new Error("not loaded");
});

export function Markdown(props: { text: string; isGrowing?: boolean }) {
  const Loaded = shown.value;
  if (!Loaded) wantMarkdown();
  return Loaded ? <Loaded {...props} /> : <div dir="auto">{props.text}</div>;
}
