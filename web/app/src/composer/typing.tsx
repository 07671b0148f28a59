/**
 * Tells the other readers of a chat when a person is typing here, and shows which other readers are typing (PROTOCOL
 * §4).
 */

import { effect, signal } from "@preact/signals";

import { chat, onEvent, state } from "../state/session.ts";
import css from "./composer.module.css";

/**
 * While a person types, the report is repeated before the other readers discard it after `GONE_MS`. A lost message
 * therefore does no harm.
 */
const REPEAT_MS = 3_000;
const GONE_MS = 7_000;
/** After this time without a key press a person counts as no longer typing. */
const IDLE_MS = 4_000;

/** The chat in which this person was reported as typing, and the time of the last report; null for none. */
let told: { chatId: string; at: number } | null = null;
let idle: ReturnType<typeof setTimeout> | undefined;

/** Reports the text in the message box after a change; "" ends the typing. */
export function typed(text: string): void {
  clearTimeout(idle);
  const opened = chat.peek();
  // A chat without messages has no other readers.
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

/** The people who are typing in the open chat, by name ("" if unknown), each with the timer that removes the name. */
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
