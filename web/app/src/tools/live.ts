/**
 * What the chat says of its calls, as signals that change only when it does: a growing answer redraws no card.
 *
 * Which chats a running call has begun is told by events alone, and so is the end of a process; they are kept here while
 * the chat is open. A finished call names its chats itself.
 */

import { computed, effect, signal } from "@preact/signals";
import type { ChatList, ChatSummary, ProcessCompleted, WireEvent } from "threadcast-client";

import { chat, client, isReady, isRunning, onEvent, state } from "../state/session.ts";
import { resultsById } from "./calls.ts";

const nodes = computed(() => state.value.nodes);
const path = computed(() => state.value.path);
const tools = computed(() => state.value.runtime.tools);
const asked = computed(() => state.value.runtime.pause_reasons);
const NONE: never[] = [];

export const results = computed(() => resultsById(nodes.value, path.value));
export const statuses = computed(() => new Map((tools.value ?? []).map((status) => [status.tool_call_id, status])));
export const reasons = computed(() => asked.value ?? NONE);
export const ideCalls = computed(() => state.value.runtime.ide_calls ?? NONE);
export const agents = computed(() => state.value.backgroundAgents);
export const payloads = computed(() => state.value.payloads);
export const openDraftId = computed(() => state.value.draft?.message.message_id);

/** The last message of the path, as far as it is no draft: what is offered at rest stands on it. */
export const lastMessage = computed(() => nodes.value.get(path.value.at(-1) ?? ""));

/** Previews of the active path that nobody has decided. */
export const openPreviews = computed(() => {
  const pending = payloads.value.filter((payload) => payload.source === "preview" && payload.approval === "pending");
  if (!pending.length) return pending;
  const onPath = new Set(path.value);
  return pending.filter((payload) => onPath.has(payload.message_id));
});

/** Chats by the call that has begun them, as far as this page has seen it happen. */
export const subchats = signal<ReadonlyMap<string, readonly string[]>>(new Map());
/** Chats below that were at work when this page came to the chat, whose calls it does not know. */
export const atWork = signal<readonly ChatSummary[]>([]);
/** Ends of processes, newest last, until they are dismissed. */
export const ended = signal<readonly ProcessCompleted[]>([]);

const ENDED_KEPT = 5;

effect(() => {
  chat.value;
  subchats.value = new Map();
  atWork.value = [];
  ended.value = [];
});

onEvent((arrived) => {
  if (!("seq" in arrived)) return; // a transient frame, which says nothing of calls
  const event = arrived as WireEvent;
  if (event.type === "subchat_update") {
    begun(event.tool_call_id, event.subchat_id);
  } else if (event.type === "process_completed") {
    ended.value = [...ended.peek(), event].slice(-ENDED_KEPT);
  }
});

/** Whoever comes while calls run asks once which chats of theirs are at work. Of one call they are its own; of several
 * nobody tells, and they are shown beside them. */
effect(() => {
  const opened = chat.value;
  if (!opened || !isReady.value || !isRunning.peek() || !tools.peek()?.length) return;
  void client.get<ChatList>(`/v1/chats?parent_id=${opened.id}&limit=20`).then(
    ({ items }) => {
      const agentIds = new Set(agents.peek().map((agent) => agent.id));
      const found = items.filter((item) => WORKING.has(item.state) && !agentIds.has(item.id));
      const calls = tools.peek()?.filter((tool) => tool.status === "running" || tool.status === "progress") ?? [];
      if (chat.peek() !== opened || !found.length) return;
      if (calls.length !== 1) atWork.value = found;
      else for (const item of found) begun(calls[0]!.tool_call_id, item.id);
    },
    () => {}, // it is no more than a link; the call's own card stands
  );
});

function begun(callId: string, chatId: string): void {
  const known = subchats.peek().get(callId) ?? [];
  if (!known.includes(chatId)) subchats.value = new Map(subchats.peek()).set(callId, [...known, chatId]);
}

const WORKING: ReadonlySet<string> = new Set(["generating", "executing_tools", "paused", "waiting_ide"]);
