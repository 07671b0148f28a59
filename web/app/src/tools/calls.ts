/**
 * Computes the state of a tool call from the chat: the answer with the call, the message with its result, the latest
 * `tool_status`, and the question that it waits for.
 *
 * Pure. The state of a call with a result depends only on the result, so a page that is opened later shows the same
 * state.
 */

import { textOf, type IdeCall, type JsonObject, type Message, type PauseReason, type ToolCall, type ToolStatus } from "threadcast-client";

export type CallState =
  | "writing"
  | "waiting"
  | "asking"
  | "client"
  | "running"
  | "done"
  | "error"
  | "denied"
  | "cancelled"
  | "interrupted"
  | "timed_out"
  | "unknown";

/** The parts of the chat's state that concern one call, apart from the call itself. */
export interface Known {
  readonly result?: Message | undefined;
  readonly status?: ToolStatus | undefined;
  readonly reason?: PauseReason | undefined;
  readonly ideCall?: IdeCall | undefined;
  /** Whether the answer with the call is still being written. */
  readonly isDraft: boolean;
  /** Whether a run is open that may still carry out the call. */
  readonly isRunOpen: boolean;
}

export const STATE_WORDS: Record<CallState, string> = {
  writing: "preparing",
  waiting: "waiting",
  asking: "needs your decision",
  client: "waiting for an editor",
  running: "running",
  done: "done",
  error: "failed",
  denied: "denied",
  cancelled: "cancelled",
  interrupted: "interrupted",
  timed_out: "timed out",
  unknown: "outcome unknown",
};

const OUTCOMES: Record<string, CallState> = { denied: "denied", aborted: "cancelled", outcome_unknown: "unknown" };

/** The server's sentences about an exceeded deadline; the call's outcome is only `error`. */
const LATE = /^(?:The tool did not finish within|No client answered this call)/;
/** The server's sentences about a call that never ran because a newer message took its place. */
const STEERED = /^(?:Interrupted by a new message|The run ended before this call was run)/;

export function stateOf({ result, status, reason, ideCall, isDraft, isRunOpen }: Known): CallState {
  if (result) return outcomeOf(result);
  if (reason) return "asking";
  if (ideCall) return "client";
  if (status?.status === "running" || status?.status === "progress") return "running";
  if (isDraft) return "writing";
  return isRunOpen ? "waiting" : "interrupted";
}

function outcomeOf(result: Message): CallState {
  if (!result.tool_failed) return "done";
  const text = textOf(result);
  if (STEERED.test(text)) return "interrupted";
  const outcome = result.extra?.outcome;
  if (typeof outcome === "string" && OUTCOMES[outcome]) return OUTCOMES[outcome];
  return LATE.test(text) ? "timed_out" : "error";
}

/** The text that replaces a result which only the model may read (PROTOCOL §11). */
const WITHHELD = "[Only the model reads this result.]";

export function isWithheld(result: Message): boolean {
  return textOf(result) === WITHHELD;
}

export function elapsedOf(result: Message | undefined): number | null {
  const elapsed = result?.extra?.elapsed_ms;
  return typeof elapsed === "number" ? elapsed : null;
}

/** Returns the ids of the chats that the call ran, from its result. */
export function subchatsOf(result: Message | undefined): readonly string[] {
  const named = result?.extra?.subchats;
  return Array.isArray(named) ? named.filter((id): id is string => typeof id === "string") : [];
}

/** Returns the result messages by the ids of their calls. */
export function resultsById(nodes: ReadonlyMap<string, Message>, path: readonly string[]): ReadonlyMap<string, Message> {
  const found = new Map<string, Message>();
  for (const id of path) {
    const message = nodes.get(id);
    if (message?.role === "tool" && message.tool_call_id) found.set(message.tool_call_id, message);
  }
  return found;
}

/**
 * Returns the arguments with which the call runs: the arguments in its status, which a person or the server may have
 * changed, or else the model's arguments.
 */
export function inputOf(call: ToolCall, status: ToolStatus | undefined): JsonObject | string {
  return status?.input ?? objectOf(call.function.arguments) ?? call.function.arguments;
}

/** Returns the JSON object in a text; null if the text is not a JSON object. */
function objectOf(text: string): JsonObject | null {
  try {
    const value: unknown = JSON.parse(text);
    return isObject(value) ? value : null;
  } catch {
    return null;
  }
}

export function isObject(value: unknown): value is JsonObject {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** Returns the MCP server in a tool's full name, `mcp__SERVER__TOOL`. */
export function mcpServerOf(name: string): string | null {
  return /^mcp__([A-Za-z0-9-]+(?:_[A-Za-z0-9-]+)*?)__.+$/.exec(name)?.[1] ?? null;
}

/** Returns a tool's name without the prefix of its server. */
export function shownName(name: string): string {
  const server = mcpServerOf(name);
  return server ? name.slice(`mcp__${server}__`.length) : name;
}
