/** "Ann is typing": told to the others while somebody writes here, and shown, quietly, while others do (PROTOCOL §4). */

import { effect, signal } from "@preact/signals";

import { chat, onEvent, state } from "../state/session.ts";
import css from "./composer.module.css";

/** Somebody who writes says so again before `GONE_MS` have passed; a word that was lost matters no longer. */
const REPEAT_MS = 3_000;
const GONE_MS = 7_000;
/** Who has not touched a key for so long does not type. */
const IDLE_MS = 4_000;

/** What the others were told last and still believe: that we type in this chat, and when. */
let told: { chatId: string; at: number } | null = null;
let idle: ReturnType<typeof setTimeout> | undefined;

/** What stands in the box now; "" ends it. */
export function typed(text: string): void {
  clearTimeout(idle);
  const opened = chat.peek();
  // A chat that nobody has begun has no readers.
  if (!opened || !state.peek().position) return;
  if (!text) {
    if (told?.chatId === opened.id) opened.type(false);
    told = null;
    return;
  }
  idle = setTimeout(() => typed(""), IDLE_MS);
  if (told?.chatId === opened.id && performance.now() - told.at < REPEAT_MS) return;
  told = { chatId: opened.id, at: performance.now() };
  opened.type(true);
}

/** Who types in the open chat, by name, "" for somebody unknown; each with the timer that forgets them. */
const typing = signal<ReadonlyMap<string, ReturnType<typeof setTimeout>>>(new Map());

onEvent((event) => {
  if (event.type !== "typing") return;
  const { by, typing: isTyping } = event as { by?: unknown; typing?: unknown };
  hear(typeof by === "string" ? by : "", isTyping === true);
});

effect(() => {
  void chat.value;
  for (const timer of typing.peek().values()) clearTimeout(timer);
  typing.value = new Map();
});

function hear(name: string, isTyping: boolean): void {
  const now = new Map(typing.peek());
  clearTimeout(now.get(name));
  if (isTyping) now.set(name, setTimeout(() => hear(name, false), GONE_MS));
  else now.delete(name);
  typing.value = now;
}

export function Typing() {
  const names = [...typing.value.keys()];
  const who = names.length > 1 ? `${names.length} people are` : names.length ? `${names[0] || "Somebody"} is` : "";
  return (
    <p class={css.typing} role="status">
      {who && `${who} typing…`}
    </p>
  );
}
