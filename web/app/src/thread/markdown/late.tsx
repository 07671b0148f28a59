/**
 * `Markdown`, loaded when a chat is opened: parsing, cleaning and footnotes are a third of the page's scripts, and the start
 * screen has no use for them.
 */

import { signal } from "@preact/signals";

import { fetched } from "../../ui/lazy.tsx";

type Room = typeof import("./markdown.tsx");

/** Undefined until the code is loaded; null if it could not be loaded, and answers are shown as plain text. */
export const room = signal<Room | null | undefined>(undefined);
let isAsked = false;

/** Loads the code. Called as soon as a chat is chosen, so that code and chat load at the same time. */
export function wantMarkdown(): void {
  if (isAsked) return;
  isAsked = true;
  void fetched(() => import("./markdown.tsx")).then((come) => {
    room.value = come;
    isAsked = come !== null; // else the next text tries again
  });
}

export function Markdown(props: { text: string; isGrowing?: boolean }) {
  if (!room.value) wantMarkdown();
  const Loaded = room.value?.Markdown;
  return Loaded ? <Loaded {...props} /> : <div dir="auto">{props.text}</div>;
}
