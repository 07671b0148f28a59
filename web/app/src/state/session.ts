/**
 * The one connection of this page, and the chat that is open: what every part of the page reads.
 *
 * Signals hold the client's values as they are. A chat's state is handed on once a frame, so that two hundred tokens a
 * second draw sixty times at most. Nothing is kept here that the server could tell: a reload shows the same page.
 */

import { batch, computed, effect, signal, untracked } from "@preact/signals";
import {
  type Chat,
  type ChatEvent,
  type ChatsList,
  type ChatState,
  connect,
  type Connection,
  emptyState,
  type Happening,
  isSignedOut,
  newId,
  NO_CHATS,
  StorageOutbox,
} from "threadcast-client";

import { route } from "./route.ts";
import { caller, isForgetful, person } from "./storage.ts";
import { cameWithToken, token } from "./token.ts";

export const client = connect({
  shared: true,
  awaitsSignIn: true,
  outbox: new StorageOutbox(person),
  ...(caller && { principal: caller }),
  ...(cameWithToken && { token }),
});

export const chats = signal<ChatsList>(NO_CHATS);
client.follow((list) => {
  chats.value = list;
});

/** The open chat. Before its snapshot `isReady` is false and `live` an empty chat. */
export const chat = signal<Chat | null>(null);
export const live = signal<ChatState>(emptyState("none"));
/** The chat as it was, while somebody looks at that; null for now. Nothing can be done to it. */
export const past = signal<ChatState | null>(null);
/** What is shown: all rooms read this one. */
export const state = computed(() => past.value ?? live.value);
export const connection = signal<Connection>({ state: "offline", held: 0 });
export const isReady = signal(false);
export const failure = signal<Error | null>(null);

/** What people are told, newest last. What went wrong stays until dismissed; what `isHarmless` goes by itself. */
export interface Notice {
  readonly id: string;
  readonly text: string;
  readonly isHarmless: boolean;
}

export const notices = signal<readonly Notice[]>([]);

/** More than five at a time nobody reads, and they cover the chat. */
const NOTICES_MAX = 5;

export function notify(text: string, { isHarmless = false } = {}): void {
  const others = notices.value.filter((notice) => notice.text !== text); // the same again is no second thing to read
  notices.value = [...others.slice(1 - NOTICES_MAX), { id: newId(), text, isHarmless }];
}

effect(() => {
  if (!isForgetful.value) return;
  untracked(() => notify("This browser keeps nothing for this page. What you write and have not sent is lost when the tab is closed."));
});

/** A request was refused because the server does not know the caller. Only the sign-in screen reports this. */
export const isRefused = signal(false);

/** What was caught, in the words of whoever said no. */
export function notifyOf(wrong: unknown): void {
  if (isSignedOut(wrong)) {
    isRefused.value = true;
    return;
  }
  notify(wrong instanceof Error ? wrong.message : String(wrong));
}

/** Request ids of commands whose refusals are shown where they were sent from, and not as notices. */
export const saidElsewhere = new Set<string>();

export function dismiss(id: string): void {
  notices.value = notices.value.filter((notice) => notice.id !== id);
}

type Listener = (event: ChatEvent, position: number, id: string) => void;
const listeners = new Set<Listener>();

/** Every event of whichever chat is open, as it comes. */
export function onEvent(listener: Listener): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

type Watcher = (happening: Happening) => void;
const watchers = new Set<Watcher>();

/** What happens to the connection of whichever chat is open. */
export function onConnection(watcher: Watcher): () => void {
  watchers.add(watcher);
  return () => watchers.delete(watcher);
}

effect(() => {
  const id = route.value.chatId;
  if (chat.peek()?.id === id) return;
  const left = chat.peek();
  if (left) leave(left);
  const opened = id === null ? null : client.chat(id);
  batch(() => {
    chat.value = opened;
    live.value = emptyState(id ?? "none");
    past.value = null;
    connection.value = { state: "offline", held: 0 };
    isReady.value = false;
    failure.value = null;
  });
  if (opened) show(opened);
});

document.addEventListener("visibilitychange", () => {
  if (document.visibilityState === "visible") chat.peek()?.look();
});

/** What was sent there goes out before nobody looks any more. */
function leave(left: Chat): void {
  let isOver = false;
  const look = () => {
    if (isOver || (!left.failure && left.connection.held)) return;
    isOver = true;
    queueMicrotask(() => left.close());
  };
  left.subscribe(look);
  look();
}

function show(opened: Chat): void {
  let isDue = false;
  const draw = () => {
    isDue = false;
    if (chat.peek() !== opened) return;
    batch(() => {
      live.value = opened.state;
      connection.value = opened.connection;
      isReady.value = opened.isReady;
      failure.value = opened.failure;
    });
  };
  if (document.visibilityState === "visible") opened.look();
  opened.subscribe(() => {
    if (isDue) return;
    isDue = true;
    // A hidden page draws no frames, and is drawn when it is looked at again.
    if (document.visibilityState === "visible") requestAnimationFrame(draw);
    else setTimeout(draw, 250);
  });
  opened.onRefused((requestId, wrong) => {
    const isSaid = saidElsewhere.delete(requestId) || wrong.code === "cancelled"; // a message that a person took back disappears anyway
    if (!isSaid) notify(wrong.message);
  });
  opened.onEvent((event, position, id) => {
    if (chat.peek() === opened) listeners.forEach((listen) => listen(event, position, id));
  });
  opened.onConnection((happening) => {
    if (chat.peek() === opened) watchers.forEach((watch) => watch(happening));
  });
}

export const title = computed(() => state.value.thread.title || "New Chat");
/** A run is open in the chat that is shown: now, or at the moment of the past that somebody looks at. */
export const isRunShown = computed(() => !["idle", "completed", "waiting_user_input", "error"].includes(state.value.runtime.state));
/** A run is open now, and the present is shown. */
export const isRunning = computed(() => !past.value && isRunShown.value);
effect(() => {
  document.title = chat.value ? `${title.value} · Threadcast` : "Threadcast";
});
