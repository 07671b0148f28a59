/**
 * Where a call of a tool stands, from what the chat says of it: the answer that made it, the message that answered it,
 * the latest `tool_status`, and the question that it waits for.
 *
 * Pure. A call that has a result is judged by the result alone, so a page that comes later shows the same.
 */

import type { IdeCall, JsonObject, Message, PauseReason, ToolCall, ToolStatus } from "threadcast-client";

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

/** What is known of one call besides its own words. */
export interface Known {
  readonly result?: Message | undefined;
  readonly status?: ToolStatus | undefined;
  readonly reason?: PauseReason | undefined;
  readonly ideCall?: IdeCall | undefined;
  /** Whether the answer that makes the call is still being written. */
  readonly isDraft: boolean;
  /** Whether a run is open that may still come to it. */
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

/** The server's own sentences for a deadline that has passed; the outcome of both is a plain `error`. */
const LATE = /^(?:The tool did not finish within|No client answered this call)/;
/** ... and for a call that never ran because a newer message took its place. */
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
  const text = resultText(result);
  if (STEERED.test(text)) return "interrupted";
  const outcome = result.extra?.outcome;
  if (typeof outcome === "string" && OUTCOMES[outcome]) return OUTCOMES[outcome];
  return LATE.test(text) ? "timed_out" : "error";
}

/** The message's text. Written again here so that a pure file needs no client at run time. */
export function resultText(message: Message): string {
  if (typeof message.content === "string") return message.content;
  return message.content.flatMap((part) => (part.type === "text" ? [part.text] : [])).join("\n");
}

/** What stands in place of a result that the server keeps for the model (PROTOCOL §11). */
const WITHHELD = "[Only the model reads this result.]";

export function isWithheld(result: Message): boolean {
  return resultText(result) === WITHHELD;
}

export function elapsedOf(result: Message | undefined): number | null {
  const elapsed = result?.extra?.elapsed_ms;
  return typeof elapsed === "number" ? elapsed : null;
}

/** The chats that the call has run, as its result names them. */
export function subchatsOf(result: Message | undefined): readonly string[] {
  const named = result?.extra?.subchats;
  return Array.isArray(named) ? named.filter((id): id is string => typeof id === "string") : [];
}

/** The messages that answer calls, by the call's id. */
export function resultsById(nodes: ReadonlyMap<string, Message>, path: readonly string[]): ReadonlyMap<string, Message> {
  const found = new Map<string, Message>();
  for (const id of path) {
    const message = nodes.get(id);
    if (message?.role === "tool" && message.tool_call_id) found.set(message.tool_call_id, message);
  }
  return found;
}

/** Arguments as they run: a person's or the server's, where the status shows them; else the model's. */
export function inputOf(call: ToolCall, status: ToolStatus | undefined): JsonObject | string {
  return status?.input ?? objectOf(call.function.arguments) ?? call.function.arguments;
}

/** A JSON object, or null. */
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

/** The tool's MCP server, from the name that models are told: `mcp__SERVER__TOOL`. */
export function mcpServerOf(name: string): string | null {
  return /^mcp__([A-Za-z0-9-]+(?:_[A-Za-z0-9-]+)*?)__.+$/.exec(name)?.[1] ?? null;
}

/** How people read a tool's name: without the prefix of its server. */
export function shownName(name: string): string {
  const server = mcpServerOf(name);
  return server ? name.slice(`mcp__${server}__`.length) : name;
}
