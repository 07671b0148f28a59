/**
 * Signals of the chat's calls, payloads and questions. Each signal changes only when its content changes, so that no
 * card is drawn again while an answer grows.
 *
 * Only events report which chats a running call has started and that a process has ended, so this module keeps these
 * reports while the chat is open. The result of a finished call names its chats.
 */

import { computed, effect, signal } from "@preact/signals";
import type { ChatList, ChatSummary, ProcessCompleted, WireEvent } from "threadcast-client";

import { chat, client, isReady, isRunning, onEvent, state } from "../state/session.ts";
import { resultsById } from "./calls.ts";

export const nodes = computed(() => state.value.nodes);
export const path = computed(() => state.value.path);
const tools = computed(() => state.value.runtime.tools);
const asked = computed(() => state.value.runtime.pause_reasons);
const NONE: never[] = [];

export const results = computed(() => resultsById(nodes.value, path.value));
export const statuses = computed(() => new Map((tools.value ?? []).map((status) => [status.tool_call_id, status])));
export const reasons = computed(() => asked.value ?? NONE);
export const ideCalls = computed(() => state.value.runtime.ide_calls ?? NONE);
export const agentSteps = computed(() => state.value.runtime.agent_steps ?? NONE);
export const agents = computed(() => state.value.backgroundAgents);
export const payloads = computed(() => state.value.payloads);
export const openDraftId = computed(() => state.value.draft?.message.message_id);

/** The last finished message of the path, whose suggestions are shown while the chat rests. */
export const lastMessage = computed(() => nodes.value.get(path.value.at(-1) ?? ""));

/** Previews of the active path that are not decided yet. */
export const openPreviews = computed(() => {
  const pending = payloads.value.filter((payload) => payload.source === "preview" && payload.approval === "pending");
  if (!pending.length) return pending;
  const onPath = new Set(path.value);
  return pending.filter((payload) => onPath.has(payload.message_id));
});

/** The chats that each call has started while this page was open. */
export const subchats = signal<ReadonlyMap<string, readonly string[]>>(new Map());
/** Working chats that calls had started before this page opened the chat; which call started them is not known. */
export const atWork = signal<readonly ChatSummary[]>([]);
/** Ended processes, the newest last, until the person dismisses them. */
export const ended = signal<readonly ProcessCompleted[]>([]);

const ENDED_KEPT = 5;

effect(() => {
  chat.value;
  subchats.value = new Map();
  atWork.value = [];
  ended.value = [];
});

onEvent((arrived) => {
  if (!("seq" in arrived)) return; // a transient frame, which does not name calls
  const event = arrived as WireEvent;
  if (event.type === "subchat_update") {
    begun(event.tool_call_id, event.subchat_id);
  } else if (event.type === "process_completed") {
    ended.value = [...ended.peek(), event].slice(-ENDED_KEPT);
  }
});

/**
 * A page that opens a chat with running calls fetches the chats of these calls once. If one call is running, the chats
 * belong to this call. If several calls are running, the call of each chat is unknown, so the chats are shown
 * separately.
 */
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
    () => {}, // only the link is missing; the card of the call is shown
  );
});

function begun(callId: string, chatId: string): void {
  const known = subchats.peek().get(callId) ?? [];
  if (!known.includes(chatId)) subchats.value = new Map(subchats.peek()).set(callId, [...known, chatId]);
}

const WORKING: ReadonlySet<string> = new Set(["generating", "executing_tools", "paused", "waiting_ide"]);
