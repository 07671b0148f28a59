/**
 * Holds the page's client and the open chat as signals, which every part of the page reads.
 *
 * The signals hold the client's own values. A chat's state is passed on once a frame, so that two hundred tokens a
 * second are drawn at most sixty times. The server knows all of this state, so a reload shows the same page.
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
  Refused,
  NO_CHATS,
  StorageOutbox,
} from "threadcast-client";

import { route } from "./route.ts";
import { caller, isForgetful, person } from "./storage.ts";
import { carriesToken, token } from "./token.ts";
import { titleOf } from "../ui/title.ts";

/** The credential for tools that the embedding page has sent (`page_context.ts`), kept only in this tab's memory. */
export const lent = signal<string | undefined>(undefined);

export const client = connect({
  shared: true,
  awaitsSignIn: true,
  outbox: new StorageOutbox(person),
  ...(caller && { principal: caller }),
  ...(carriesToken && { token }),
  forwardAuthorization: () => lent.peek(),
});

export const chats = signal<ChatsList>(NO_CHATS);
client.follow((list) => {
  chats.value = list;
});

/** The open chat. Until the chat's snapshot arrives, `isReady` is false and `live` is an empty chat. */
export const chat = signal<Chat | null>(null);
export const live = signal<ChatState>(emptyState("none"));
/** During time travel, the chat at the chosen position; otherwise null. Commands are refused meanwhile. */
export const earlier = signal<ChatState | null>(null);
/** The state that is shown; all views read this signal. */
export const state = computed(() => earlier.value ?? live.value);
export const connection = signal<Connection>({ state: "offline", held: 0 });
export const isReady = signal(false);
export const failure = signal<Error | null>(null);

/**
 * The notices, newest last. A notice about an error stays until the person closes it; a notice with `isHarmless`
 * disappears by itself.
 */
export interface Notice {
  readonly id: string;
  readonly text: string;
  readonly isHarmless: boolean;
}

export const notices = signal<readonly Notice[]>([]);

/** More than five notices would cover the chat. */
const NOTICES_MAX = 5;

export function notify(text: string, { isHarmless = false } = {}): void {
  const others = notices.value.filter((notice) => notice.text !== text); // an identical notice is shown once
  notices.value = [...others.slice(1 - NOTICES_MAX), { id: newId(), text, isHarmless }];
}

effect(() => {
  if (!isForgetful.value) return;
  untracked(() => notify("This browser does not store data for this page. Unsent text is lost when you close the tab."));
});

/** A request was refused because the server does not know the caller. Only the sign-in screen reports this refusal. */
export const isRefused = signal(false);

/** Shows a caught error as a notice. */
export function notifyOf(wrong: unknown): void {
  if (isSignedOut(wrong)) {
    isRefused.value = true;
    return;
  }
  notify(reasonOf(wrong));
}

/** Returns a caught error in words for a person. */
export function reasonOf(wrong: unknown): string {
  if (wrong instanceof Refused && wrong.code === "id_taken") return "Another person’s chat has this address. Start a new chat to send your message.";
  return wrong instanceof Error ? wrong.message : String(wrong);
}

/** Request ids of commands whose refusals are shown beside the control that sent them, and not as notices. */
export const saidElsewhere = new Set<string>();

export function dismiss(id: string): void {
  notices.value = notices.value.filter((notice) => notice.id !== id);
}

type Listener = (event: ChatEvent, position: number, id: string) => void;
const listeners = new Set<Listener>();

/** Calls `listener` with every event of the open chat, also after another chat is opened. */
export function onEvent(listener: Listener): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

type Watcher = (happening: Happening) => void;
const watchers = new Set<Watcher>();

/** Calls `watcher` with the connection's events of the open chat, also after another chat is opened. */
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
    earlier.value = null;
    connection.value = { state: "offline", held: 0 };
    isReady.value = false;
    failure.value = null;
  });
  if (opened) show(opened);
});

document.addEventListener("visibilitychange", () => {
  if (document.visibilityState === "visible") chat.peek()?.look();
});

/** A chat with unsent commands is closed only after they are posted. */
function leave(left: Chat): void {
  let isOver = false;
  const look = () => {
    if (isOver || (!left.failure && left.waiting.length)) return;
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
    // A hidden page gets no animation frames; it is drawn when it becomes visible.
    if (document.visibilityState === "visible") requestAnimationFrame(draw);
    else setTimeout(draw, 250);
  });
  opened.onRefused((requestId, wrong) => {
    const isSaid = saidElsewhere.delete(requestId) || wrong.code === "cancelled"; // a message that the person took back needs no notice
    if (!isSaid) notify(reasonOf(wrong));
  });
  opened.onEvent((event, position, id) => {
    if (chat.peek() === opened) listeners.forEach((listen) => listen(event, position, id));
  });
  opened.onConnection((happening) => {
    if (chat.peek() === opened) watchers.forEach((watch) => watch(happening));
  });
}

export const title = computed(() => titleOf(state.value.thread.title));
/** Whether a run is open in the shown state, which may be an earlier one. */
export const isRunShown = computed(() => !["idle", "completed", "waiting_user_input", "error"].includes(state.value.runtime.state));
/** Whether a run is open now and the present is shown. */
export const isRunning = computed(() => !earlier.value && isRunShown.value);
effect(() => {
  document.title = chat.value ? `${title.value} · Threadcast` : "Threadcast";
});
