/**
 * Applies public events to a chat's state, like `protocol/threadcast_protocol/fold/reducer.py`.
 *
 * Pure. The law `state(i) + events(i..j) == state(j)` always holds; the tests fold the same recorded streams with both
 * reducers. An event of an unknown type changes only the position.
 */

import { AT_REST, draftedMessage, type ChatState, type Draft } from "./state.js";
import type {
  AddCitation,
  AddServerContentBlock,
  AgentStep,
  AppendContent,
  AppendReasoning,
  IdeCall,
  MergeExtra,
  Message,
  MessageAdded,
  PayloadAdded,
  Runtime,
  RuntimeUpdated,
  SetReasoning,
  SetThinkingBlocks,
  SetToolCalls,
  SetUsage,
  Thread,
  ToolStatus,
  WireEvent,
} from "./types.js";

type Op =
  | AppendContent
  | AppendReasoning
  | SetReasoning
  | SetToolCalls
  | SetThinkingBlocks
  | AddCitation
  | AddServerContentBlock
  | SetUsage
  | MergeExtra;

const RECENT_ACKS_KEPT = 64;
const AGENTS_KEPT = 64;
const AGENT_STEPS_KEPT = 100;
const FINAL_TOOL_STATUSES: ReadonlySet<string> = new Set(["done", "error", "denied", "aborted", "outcome_unknown"]);

/** Returns the state after `event`, which must be the next event after `state`. */
export function reduce(state: ChatState, event: WireEvent): ChatState {
  return { ...fold(state, event), position: state.position + 1 };
}

function fold(state: ChatState, event: WireEvent): ChatState {
  switch (event.type) {
    case "ack":
      return { ...state, recentAcks: [...state.recentAcks, inner(event)].slice(-RECENT_ACKS_KEPT) };
    case "queue_updated":
      return withRuntime(state, { queue_size: event.queue_size, queued_items: event.queued_items });
    case "runtime_updated":
      return { ...state, runtime: runtimeAfter(state.runtime, inner(event)) };
    case "thread_updated": {
      const { type: _type, ...changes } = inner(event);
      return { ...state, thread: { ...state.thread, ...(changes as Partial<Thread>) } };
    }
    case "message_added":
      return messageAdded(state, event);
    case "message_updated":
      return state.nodes.has(event.message_id) ? withNode(state, event.message_id, event.message) : state;
    case "message_removed":
      return messageRemoved(state, event.message_id);
    case "messages_truncated": {
      const cut = state.path.slice(event.from_index);
      const baked = state.draft && cut.includes(state.draft.message.message_id) ? bake(state, state.draft) : state;
      return { ...baked, path: state.path.slice(0, event.from_index) };
    }
    case "stream_started":
      return streamStarted(state, event);
    case "stream_delta":
      return state.draft?.message.message_id === event.message_id
        ? { ...state, draft: (event.ops as Op[]).reduce(apply, state.draft) }
        : state;
    case "stream_finished": {
      const { draft } = state;
      if (draft?.message.message_id !== event.message_id) return state;
      const usage = event.usage ?? draft.message.usage;
      return bake(state, { ...draft, message: { ...draft.message, finish_reason: event.finish_reason, usage } });
    }
    case "pause_required":
      return withRuntime(state, { pause_reasons: event.reasons });
    case "pause_cleared":
      return withRuntime(state, { pause_reasons: [] });
    case "tool_status":
      return withRuntime(state, toolStatus(state.runtime, inner(event)));
    case "ide_tool_required": {
      const { tool_call_id, tool_name, args, deadline_at } = event;
      const others = (state.runtime.ide_calls ?? []).filter((call) => call.tool_call_id !== tool_call_id);
      return withRuntime(state, { ide_calls: [...others, { tool_call_id, tool_name, args, deadline_at }] });
    }
    case "background_agent_updated": {
      const others = state.backgroundAgents.filter((agent) => agent.id !== event.agent.id);
      return { ...state, backgroundAgents: [...others, event.agent].slice(-AGENTS_KEPT) };
    }
    case "agent_step":
      return withRuntime(state, { agent_steps: agentSteps(state.runtime.agent_steps ?? [], inner(event)) });
    case "payload_added":
      return { ...state, payloads: [...state.payloads, inner(event)] };
    case "payload_updated": {
      const now: PayloadAdded = { ...inner(event), type: "payload_added" };
      return { ...state, payloads: state.payloads.map((old) => (old.payload_id === now.payload_id ? now : old)) };
    }
    default:
      return state;
  }
}

/** Returns the event without the fields that only the stream adds. */
function inner<E extends WireEvent>(event: E): Omit<E, "chat_id" | "seq"> {
  const { chat_id: _chat, seq: _seq, ...rest } = event;
  return rest;
}

function withRuntime(state: ChatState, changes: Partial<Runtime>): ChatState {
  return { ...state, runtime: { ...state.runtime, ...changes } };
}

function withNode(state: ChatState, id: string, message: Message): ChatState {
  return { ...state, nodes: new Map(state.nodes).set(id, message) };
}

/** `runtime_updated` replaces everything known about the run: a missing field clears its old value. */
function runtimeAfter(before: Runtime, event: RuntimeUpdated): Runtime {
  const rests = AT_REST.has(event.state);
  const { type: _type, ...now } = event;
  return {
    queue_size: before.queue_size,
    queued_items: before.queued_items,
    pause_reasons: before.pause_reasons,
    agent_steps: before.agent_steps,
    tools: rests ? [] : before.tools,
    ide_calls: rests ? [] : before.ide_calls,
    is_compressing: false,
    error: null,
    ...now,
    paused: event.state === "paused",
  };
}

function messageAdded(state: ChatState, event: MessageAdded): ChatState {
  const { message, index } = event;
  const id = message.message_id;
  const after = withNode(state, id, message);
  const calls = state.runtime.ide_calls;
  return {
    ...after,
    path: state.path.includes(id) ? state.path : [...state.path.slice(0, index), id, ...state.path.slice(index)],
    draft: state.draft?.message.message_id === id ? null : state.draft,
    runtime:
      message.tool_call_id != null && calls?.length
        ? { ...state.runtime, ide_calls: calls.filter((call) => call.tool_call_id !== message.tool_call_id) }
        : state.runtime,
  };
}

/** Removes a message and all its descendants; on the active path these are all later messages (CMD-9). */
function messageRemoved(state: ChatState, id: string): ChatState {
  if (!state.nodes.has(id)) return state;
  const gone = new Set([id]);
  // A child may come before its parent in the map, so the search repeats until it finds no new descendant.
  for (let before = 0; before !== gone.size; ) {
    before = gone.size;
    for (const [key, node] of state.nodes) if (node.parent_id != null && gone.has(node.parent_id)) gone.add(key);
  }
  return {
    ...state,
    nodes: new Map([...state.nodes].filter(([key]) => !gone.has(key))),
    path: state.path.filter((key) => !gone.has(key)),
    draft: state.draft && gone.has(state.draft.message.message_id) ? null : state.draft,
  };
}

function streamStarted(
  before: ChatState,
  event: { message_id: string; model?: string | null; parent_id?: string | null; created_at?: number | null },
): ChatState {
  const state = before.draft ? bake(before, before.draft) : before;
  const known = state.nodes.get(event.message_id);
  if (known) {
    const message = { ...known, finish_reason: null, status: null };
    return { ...state, draft: { message, content: textOf(known), reasoning: known.reasoning_content ?? "" } };
  }
  const message: Message = {
    role: "assistant",
    content: "",
    message_id: event.message_id,
    model: event.model,
    parent_id: event.parent_id,
    created_at: event.created_at,
  };
  return {
    ...withNode(state, message.message_id, message),
    path: [...state.path, message.message_id],
    draft: { message, content: "", reasoning: "" },
  };
}

/** Returns the text of a message; several text parts are joined by line breaks. */
export function textOf(message: Message): string {
  if (typeof message.content === "string") return message.content;
  return message.content.flatMap((part) => (part.type === "text" ? [part.text] : [])).join("\n");
}

function apply(draft: Draft, op: Op): Draft {
  const { message } = draft;
  switch (op.op) {
    case "append_content":
      return { ...draft, content: draft.content + op.text };
    case "append_reasoning":
      return { ...draft, reasoning: draft.reasoning + op.text };
    case "set_reasoning":
      return { ...draft, reasoning: op.text };
    case "set_tool_calls":
      return { ...draft, message: { ...message, tool_calls: op.tool_calls } };
    case "set_thinking_blocks":
      return { ...draft, message: { ...message, thinking_blocks: op.blocks } };
    case "add_citation":
      return { ...draft, message: { ...message, citations: [...(message.citations ?? []), op.citation] } };
    case "add_server_content_block": {
      const server_content_blocks = [...(message.server_content_blocks ?? []), op.block];
      return { ...draft, message: { ...message, server_content_blocks } };
    }
    case "set_usage":
      return { ...draft, message: { ...message, usage: op.usage } };
    case "merge_extra":
      return { ...draft, message: { ...message, extra: { ...message.extra, ...op.extra } } };
    default:
      return draft;
  }
}

function bake(state: ChatState, draft: Draft): ChatState {
  return { ...withNode(state, draft.message.message_id, draftedMessage(draft)), draft: null };
}

/** Keeps the arguments and the label of the first status, because later statuses do not repeat them. */
function begunWith(event: ToolStatus, before?: ToolStatus): ToolStatus {
  const now = { ...event };
  if (before?.input != null && event.input == null) now.input = before.input;
  if (before?.label && !event.label) now.label = before.label;
  return now;
}

function toolStatus(runtime: Runtime, event: ToolStatus): Partial<Runtime> {
  const open = runtime.tools ?? [];
  const before = open.find((tool) => tool.tool_call_id === event.tool_call_id);
  const tools = open.filter((tool) => tool !== before);
  if (!FINAL_TOOL_STATUSES.has(event.status)) tools.push(begunWith(event, before));
  const { claimed_by, claim_expires_at } = event;
  if (claimed_by == null) return { tools };
  const claimed = (call: IdeCall): IdeCall =>
    call.tool_call_id === event.tool_call_id ? { ...call, claimed_by, claim_expires_at } : call;
  return { tools, ide_calls: (runtime.ide_calls ?? []).map(claimed) };
}

/**
 * Replaces the step of the same id, or adds the step; the first step of another run removes the steps of the previous
 * run.
 */
function agentSteps(before: AgentStep[], event: AgentStep): AgentStep[] {
  const steps = before.filter((step) => step.run_id === event.run_id);
  const index = steps.findIndex((step) => step.step_id === event.step_id);
  steps.splice(index < 0 ? steps.length : index, 1, event);
  return steps.slice(-AGENT_STEPS_KEPT);
}
