/**
 * Sends the person's place with each message: the scope in the address (`?scope=`), and the context that the embedding
 * page, or the page that opened this page, sends by `postMessage`. The person sees both and can remove them; removed
 * values are not sent until the person allows it again. The operator lists the origins that may send context
 * (`server.frame_origins`, in `GET /v1/caps`). A message from any other origin changes nothing and is counted; the
 * browser's console names the origin once. Many messages cost little: messages of a refused origin are not read, and of
 * the messages of an allowed origin only the newest is used, TAKEN_PER_SECOND times a second.
 */

import { computed, effect, signal, untracked } from "@preact/signals";
import type { JsonObject } from "threadcast-client";

import { caps } from "./caps.ts";
import { contextFrom, contextOf, isAllowed } from "./contexts.ts";
import { handed, isShared } from "./handed.ts";
import { go, route } from "./route.ts";
import { lent, notify, state } from "./session.ts";

/**
 * The number of ignored messages of the type `threadcast.context`: from another origin or window, or of a wrong form.
 */
export const ignoredCount = signal(0);

/** The open chat's parameter `context`. */
export const ownContext = computed(() => (state.value.thread.context ?? null) as JsonObject | null);

/**
 * Returns the field `context` for the next `user_message`, or no field. `own` is the chat's own context, or the context
 * that is about to be set for the chat.
 */
export function withContext(own = ownContext.peek()): { context?: JsonObject } {
  takeNewest(); // a message is sent with the newest context, even before its turn
  const found = contextOf(isShared.peek() ? handed.peek() : null, route.peek().scope, own);
  return found ? { context: found } : {};
}

/** Removes the scope from the address, here and in new chats. */
export function leaveScope(): void {
  go(route.peek().chatId, { replace: true, scope: "" });
}

const TYPE = "threadcast.context";

/** The values that a header can have, up to the server's limit (PROTOCOL §18). */
const SENDABLE = /^[!-~]([ -~]{0,8190}[!-~])?$/;

/**
 * The number of new contexts that are used each second; of messages that arrive in between, only the last message of
 * each window is used.
 */
const TAKEN_PER_SECOND = 10;

/**
 * The maximum number of origins that the console names, since a page can have any number of frames with different
 * origins.
 */
const NAMED_ORIGINS = 20;

/**
 * The newest unused message of each window (there are at most two). The message waits for its turn, or for the list of
 * origins.
 */
const newest = new Map<MessageEventSource, MessageEvent>();
let takenAt = -Infinity;
let timer: ReturnType<typeof setTimeout> | undefined;

/** The refusals that were already logged to the browser's console, each as its reason and its origin. */
const named = new Set<string>();

const STRANGE_WINDOW = "it comes from a window that neither frames nor opened this page";
const STRANGE_ORIGIN = "its origin is not among server.frame_origins";

function hear(event: MessageEvent): void {
  const { source, origin } = event;
  const isOurs = source !== null && source !== window && (source === window.parent || source === window.opener);
  const origins = caps.peek()?.frame_origins;
  const why = !isOurs ? STRANGE_WINDOW : origins && !isAllowed(origin, origins, location.origin) ? STRANGE_ORIGIN : "";
  if (why && isKnown(origin, why)) return count(); // `data` is not read: reading it copies all of it
  const data: unknown = event.data;
  if (typeof data !== "object" || data === null || (data as JsonObject).type !== TYPE) return; // not meant for this page
  if (why) return refuse(origin, why);
  newest.set(source as MessageEventSource, event);
  if (origins) timer ??= setTimeout(takeNewest, Math.max(0, takenAt + 1_000 / TAKEN_PER_SECOND - performance.now()));
}

function takeNewest(): void {
  if (!caps.peek() || !newest.size) return;
  clearTimeout(timer);
  timer = undefined;
  takenAt = performance.now();
  const events = [...newest.values()];
  newest.clear();
  events.forEach(judge);
}

function judge(event: MessageEvent): void {
  if (!isAllowed(event.origin, caps.peek()?.frame_origins ?? [], location.origin)) return refuse(event.origin, STRANGE_ORIGIN);
  const { authorization } = event.data as { authorization?: string | null };
  const isSendable = authorization == null || (typeof authorization === "string" && SENDABLE.test(authorization));
  const read = isSendable ? contextFrom(event.data as JsonObject) : { wrong: "authorization is no value of a header" };
  if ("wrong" in read) {
    count();
    console.warn(warning(event.origin, read.wrong));
    (event.source as WindowProxy).postMessage({ type: "threadcast.refused", reason: read.wrong }, event.origin);
    return;
  }
  handed.value = read.context;
  if (authorization !== undefined) lent.value = authorization ?? undefined;
}

/** Counts a refused message, and names its origin in the console the first time. */
function refuse(origin: string, why: string): void {
  count();
  if (isKnown(origin, why)) return;
  named.add(`${why} ${origin}`);
  console.warn(`${warning(origin, why)}. More messages from there are only counted`);
}

function isKnown(origin: string, why: string): boolean {
  return named.has(`${why} ${origin}`) || named.size >= NAMED_ORIGINS;
}

function warning(origin: string, why: string): string {
  return `threadcast: a message from ${origin} is ignored: ${why}`;
}

function count(): void {
  ignoredCount.value += 1;
}

if (window.parent !== window || window.opener) {
  addEventListener("message", hear);
  effect(() => {
    if (caps.value) untracked(takeNewest);
  });
  // This message reveals only that the page listens now, so any origin may receive it.
  (window.parent !== window ? window.parent : (window.opener as WindowProxy)).postMessage({ type: "threadcast.ready" }, "*");
}

effect(() => {
  if (route.value.isLost) untracked(() => notify("The scope in the address is malformed, so it is ignored. A scope is one to three names with / between them."));
});
