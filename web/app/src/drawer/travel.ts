/**
 * Time travel: which position is looked at, and the chat as it was there, asked of the server (`?at=`).
 *
 * A slider may be dragged over a thousand positions; what is asked for is the newest one wanted, and one at a time. The
 * rule: `past` of the session is the chat at `shownAt`, or nobody travels. Fetched with the first journey: see way.ts.
 */

import { computed, effect, signal } from "@preact/signals";
import { Refused, stateFromSnapshot, type Snapshot } from "threadcast-client";

import { chat, client, live, notifyOf, past } from "../state/session.ts";
import { nextStop, speedsFor } from "./play.ts";

type SnapshotAt = Snapshot & { position: number };

/** The earliest position that the server can still show. */
export const firstHeld = signal(0);
/** Where the slider stands. The chat that is shown may lag a moment behind. */
export const wantedAt = signal(0);
export const shownAt = computed(() => past.value?.position ?? 0);
export const isPlaying = signal(false);
/** Which of `speedsFor` a play has: how far a step goes depends on how long the chat is. */
export const speed = signal(0);

let asking: AbortController | null = null;
// Come back, be it for another chat.
effect(() => {
  if (past.value) return;
  asking?.abort();
  asking = null;
  isPlaying.value = false;
});

/** Begin where the chat stands. */
export function begin(): void {
  firstHeld.value = 0;
  past.value = live.peek();
  wantedAt.value = live.peek().position;
  void findFirst();
}

/** Show the chat as it was after its event at `position`. */
export function goTo(position: number): void {
  wantedAt.value = Math.max(firstHeld.peek(), Math.min(position, live.peek().position));
  if (!asking) void follow();
}

/** Play from where we stand, from the beginning if that is the end, until the end or until it is stopped. */
export async function play(): Promise<void> {
  if (isPlaying.peek()) return void (isPlaying.value = false);
  isPlaying.value = true;
  if (wantedAt.peek() >= live.peek().position) goTo(firstHeld.peek());
  while (isPlaying.peek() && past.peek()) {
    await new Promise((due) => setTimeout(due, STEP_MS));
    if (asking || !isPlaying.peek()) continue; // the server sets the pace when it is slower
    const last = live.peek().position;
    const stop = nextStop(wantedAt.peek(), last, speedsFor(last - firstHeld.peek())[speed.peek()] ?? 1);
    if (stop === null) isPlaying.value = false;
    else goTo(stop);
  }
}

/** Ten steps a second: as fast as a piece of text can be seen to come. */
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
    } else past.value = stateFromSnapshot(chat.peek()?.id ?? "", then, then.position);
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

/** Position 0 is held by a log that was never trimmed; else the answer names the first that is. */
async function findFirst(): Promise<void> {
  const id = chat.peek()?.id ?? "";
  const first = await client.request("GET", `/v1/chats/${encodeURIComponent(id)}?at=0`).then(
    (answer) => (void answer.body?.cancel(), 0),
    (wrong: unknown) => (wrong instanceof Refused && wrong.code === "gone" ? Number(wrong.body?.first) : null),
  );
  if (past.peek() && chat.peek()?.id === id) firstHeld.value = first ?? live.peek().position;
}
