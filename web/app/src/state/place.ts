/**
 * Where the person is, as messages tell the assistant: the scope in the address (`?scope=`), and the context that the
 * page around this one, or the one that opened it, hands over by `postMessage`. The person sees both and can take them
 * away; then nothing is sent until the person wants it again.
 * The operator lists the origins that may hand context over (`server.frame_origins`, in `GET /v1/caps`). A message from
 * any other origin changes nothing, is counted, and is named in the browser's console.
 */

import { computed, effect, signal, untracked } from "@preact/signals";
import type { JsonObject } from "threadcast-client";

import { caps } from "./caps.ts";
import { contextFrom, contextOf, isAllowed } from "./contexts.ts";
import { handed, isShared } from "./handed.ts";
import { go, route } from "./route.ts";
import { notify, state } from "./session.ts";

/** Messages of the type `threadcast.context` that changed nothing: of another origin or window, or of a wrong shape. */
export const ignoredCount = signal(0);

/** The parameter `context` of the open chat. */
export const ownContext = computed(() => (state.value.thread.context ?? null) as JsonObject | null);

/** The field `context` of the next `user_message`, or no field. `own`: the chat's own context, as it is about to be set. */
export function withContext(own = ownContext.peek()): { context?: JsonObject } {
  const found = contextOf(isShared.peek() ? handed.peek() : null, route.peek().scope, own);
  return found ? { context: found } : {};
}

/** Removes the scope from the address, here and in new chats. */
export function leaveScope(): void {
  go(route.peek().chatId, { replace: true, scope: "" });
}

const TYPE = "threadcast.context";

/** Messages that arrived before the list of origins: the last message of each window. */
const early = new Map<MessageEventSource, MessageEvent>();

function hear(event: MessageEvent): void {
  const data: unknown = event.data;
  if (typeof data !== "object" || data === null || (data as JsonObject).type !== TYPE) return; // not meant for this page
  const isOurs = event.source !== null && event.source !== window && (event.source === window.parent || event.source === window.opener);
  if (!isOurs) return ignore(event, "it comes from a window that neither frames nor opened this page");
  if (caps.peek()) judge(event);
  else early.set(event.source as MessageEventSource, event);
}

function judge(event: MessageEvent): void {
  if (!isAllowed(event.origin, caps.peek()?.frame_origins ?? [], location.origin)) {
    return ignore(event, "its origin is not among server.frame_origins");
  }
  const read = contextFrom(event.data as JsonObject);
  if ("wrong" in read) {
    ignore(event, read.wrong);
    (event.source as WindowProxy).postMessage({ type: "threadcast.refused", reason: read.wrong }, event.origin);
  } else handed.value = read.context;
}

function ignore(event: MessageEvent, why: string): void {
  ignoredCount.value += 1;
  console.warn(`threadcast: a message from ${event.origin} is ignored: ${why}`);
}

if (window.parent !== window || window.opener) {
  addEventListener("message", hear);
  effect(() => {
    if (!caps.value) return;
    early.forEach(judge);
    early.clear();
  });
  // This message reveals only that the page listens now, so it may go to any origin.
  (window.parent !== window ? window.parent : (window.opener as WindowProxy)).postMessage({ type: "threadcast.ready" }, "*");
}

effect(() => {
  if (route.value.isLost) untracked(() => notify("The scope in the address is no place, so it is left away: it has one to three names with / between."));
});
