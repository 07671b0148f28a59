/**
 * Time travel: the chosen position, and the chat as it was then, fetched from the server (`?at=`).
 *
 * A slider may be dragged over a thousand positions, so there is one request at a time, always for the newest chosen
 * position. During time travel the session's `earlier` is the chat at `shownAt`; otherwise it is null. This module is
 * loaded when time travel first begins: see way.tsx.
 */

import { computed, effect, signal } from "@preact/signals";
import { Refused, stateFromSnapshot, type Snapshot } from "threadcast-client";

import { chat, client, live, notifyOf, earlier } from "../state/session.ts";
import { nextStop, speedsFor } from "./play.ts";

type SnapshotAt = Snapshot & { position: number };

/** The earliest position that the server can still show. */
export const firstHeld = signal(0);
/** The position of the slider. The shown chat may be a moment behind the slider. */
export const wantedAt = signal(0);
export const shownAt = computed(() => earlier.value?.position ?? 0);
export const isPlaying = signal(false);
/** The index of the chosen speed in the list that `speedsFor` returns for the length of the chat. */
export const speed = signal(0);

let asking: AbortController | null = null;
// Stops requests and playing when time travel ends. Opening another chat ends time travel, too.
effect(() => {
  if (earlier.value) return;
  asking?.abort();
  asking = null;
  isPlaying.value = false;
});

/** Begins time travel at the present position. */
export function begin(): void {
  firstHeld.value = 0;
  earlier.value = live.peek();
  wantedAt.value = live.peek().position;
  void findFirst();
}

/** Shows the chat as it was after the event at `position`. */
export function goTo(position: number): void {
  wantedAt.value = Math.max(firstHeld.peek(), Math.min(position, live.peek().position));
  if (!asking) void follow();
}

/**
 * Plays from the shown position, or from the beginning if the end is shown. Stops at the end, or when the person stops
 * it.
 */
export async function play(): Promise<void> {
  if (isPlaying.peek()) return void (isPlaying.value = false);
  isPlaying.value = true;
  if (wantedAt.peek() >= live.peek().position) goTo(firstHeld.peek());
  while (isPlaying.peek() && earlier.peek()) {
    await new Promise((due) => setTimeout(due, STEP_MS));
    if (asking || !isPlaying.peek()) continue; // a slow server makes the steps slower
    const last = live.peek().position;
    const stop = nextStop(wantedAt.peek(), last, speedsFor(last - firstHeld.peek())[speed.peek()] ?? 1);
    if (stop === null) isPlaying.value = false;
    else goTo(stop);
  }
}

/** Ten steps a second: a viewer can still see each piece of text arrive. */
const STEP_MS = 100;

async function follow(): Promise<void> {
  const own = (asking = new AbortController());
  while (!own.signal.aborted && shownAt.peek() !== wantedAt.peek()) {
    const position = wantedAt.peek();
    const then = await ask(position, own.signal);
    if (own.signal.aborted) return;
    if (!then) {
      wantedAt.value = shownAt.peek();
      isPlaying.value = false;
    } else earlier.value = stateFromSnapshot(chat.peek()?.id ?? "", then, then.position);
  }
  if (asking === own) asking = null;
}

async function ask(position: number, signal: AbortSignal): Promise<SnapshotAt | null> {
  try {
    const path = `/v1/chats/${encodeURIComponent(chat.peek()?.id ?? "")}?at=${position}`;
    return (await (await client.request("GET", path, { signal })).json()) as SnapshotAt;
  } catch (wrong) {
    if (!signal.aborted) notifyOf(wrong);
    return null;
  }
}

/**
 * A log that was never trimmed begins at position 0; otherwise the server refuses position 0 and names the first stored
 * position.
 */
async function findFirst(): Promise<void> {
  const id = chat.peek()?.id ?? "";
  const first = await client.request("GET", `/v1/chats/${encodeURIComponent(id)}?at=0`).then(
    (answer) => (void answer.body?.cancel(), 0),
    (wrong: unknown) => (wrong instanceof Refused && wrong.code === "gone" ? Number(wrong.body?.first) : null),
  );
  if (earlier.peek() && chat.peek()?.id === id) firstHeld.value = first ?? live.peek().position;
}
