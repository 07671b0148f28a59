/**
 * The state of a chat in a client: made from a snapshot, and ready for the next event.
 *
 * States are immutable: `reducer.ts` makes a new state for each event. The new state shares its unchanged parts with
 * the old state, so a view may compare by identity. This file matches `protocol/threadcast_protocol/fold/state.py` and
 * `protocol/threadcast_protocol/fold/snapshot.py`.
 */

import type { Ack, JsonObject, Message, PayloadAdded, Runtime, Snapshot, Thread } from "./types.js";

/** The answer that is being streamed: its message, and its two growing texts. */
export interface Draft {
  message: Message;
  content: string;
  reasoning: string;
}

export interface ChatState {
  readonly chatId: string;
  /** The position of the last event that was applied (PROTOCOL §4). */
  readonly position: number;
  readonly thread: Thread;
  readonly runtime: Runtime;
  /**
   * Messages by id: the messages of the active path, and the messages that were removed from the path since the
   * snapshot.
   */
  readonly nodes: ReadonlyMap<string, Message>;
  /** Ids of the active path, root first. */
  readonly path: readonly string[];
  readonly draft: Draft | null;
  readonly backgroundAgents: readonly JsonObject[];
  readonly payloads: readonly PayloadAdded[];
  readonly recentAcks: readonly Ack[];
}

/** States in which no run is open (PROTOCOL §7). */
export const AT_REST: ReadonlySet<string> = new Set(["idle", "completed", "waiting_user_input", "error"]);

export function isAtRest(state: ChatState): boolean {
  return AT_REST.has(state.runtime.state);
}

/** Returns the state of a chat without messages. */
export function emptyState(chatId: string): ChatState {
  return stateFromSnapshot(chatId, EMPTY(chatId), 0);
}

const EMPTY = (id: string): Snapshot => ({
  type: "snapshot",
  thread: { id } as Thread,
  runtime: {
    state: "idle",
    paused: false,
    error: null,
    queue_size: 0,
    queued_items: [],
    pause_reasons: [],
    is_compressing: false,
  },
  messages: [],
  background_agents: [],
});

/**
 * Returns the state that a snapshot describes. If a run is open and the last message is the assistant's without a
 * finish reason, that message is the unfinished answer.
 */
export function stateFromSnapshot(chatId: string, snapshot: Snapshot, position: number): ChatState {
  const leaf = snapshot.messages.at(-1);
  const isOpen =
    leaf?.role === "assistant" &&
    leaf.finish_reason == null &&
    typeof leaf.content === "string" &&
    !AT_REST.has(snapshot.runtime.state);
  return {
    chatId,
    position,
    thread: snapshot.thread,
    runtime: snapshot.runtime,
    nodes: new Map(snapshot.messages.map((message) => [message.message_id, message])),
    path: snapshot.messages.map((message) => message.message_id),
    draft: isOpen
      ? { message: leaf, content: leaf.content as string, reasoning: leaf.reasoning_content ?? "" }
      : null,
    backgroundAgents: snapshot.background_agents,
    payloads: snapshot.payloads ?? [],
    recentAcks: snapshot.recent_acks ?? [],
  };
}

/** Returns the unfinished answer as a message with its present texts. */
export function draftedMessage(draft: Draft): Message {
  return { ...draft.message, content: draft.content, reasoning_content: draft.reasoning || null };
}

/** Returns the messages of the active path from the root to the leaf, including the unfinished answer. */
export function activePath(state: ChatState): Message[] {
  const { draft } = state;
  return state.path.map((id) =>
    draft?.message.message_id === id ? draftedMessage(draft) : (state.nodes.get(id) as Message),
  );
}

/** Returns a snapshot from which another reader may start. Two states are equal if their snapshots are equal. */
export function snapshotOf(state: ChatState): Snapshot {
  return {
    type: "snapshot",
    thread: { ...state.thread, leaf_id: state.path.at(-1) ?? null },
    runtime: state.runtime,
    messages: activePath(state),
    background_agents: [...state.backgroundAgents],
    payloads: [...state.payloads],
    recent_acks: [...state.recentAcks],
  };
}
