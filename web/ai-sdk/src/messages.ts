/**
 * UI messages of the AI SDK, made from the state of a chat. This module matches `compat/ai_sdk/parts.py` of the server:
 * one run is one UI message, and each answer of a model is a step in it.
 */

import { activePath, isAtRest, textOf, type ChatState } from "threadcast-client";
import type { Message, PauseReason } from "threadcast-client";

/** A part of a UI message, with the fields of `UIMessagePart` in npm `ai`. */
export type UIPart = { type: string; [field: string]: unknown };

export interface UIMessage {
  id: string;
  role: "user" | "assistant";
  parts: UIPart[];
  metadata?: unknown;
}

/** A part with a name that stays the same while the part grows. */
export interface Named {
  key: string;
  part: UIPart;
}

const NONCE_CHARACTERS = 8;

/** The output of a call without a result while the run waits for a page (see `parts.py`). */
export const PENDING = "There is no result yet, because the run waits for an answer.";

/** Returns the id under which pages know a message of the user (see `message_ids.py`). */
export function uiIdOf(message: Message): string {
  const [, form, rest] = /^u([ibef])-(.+)$/.exec(message.client_request_id ?? "") ?? [];
  if (!form || !rest) return message.message_id;
  const word = form === "e" || form === "f" ? rest.slice(NONCE_CHARACTERS + 1) : rest;
  if (form === "i" || form === "e") return word;
  try {
    const bytes = Uint8Array.from(atob(word.replaceAll("-", "+").replaceAll("_", "/")), (c) => c.charCodeAt(0));
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch {
    return message.message_id; // another client chose a request id that only looks like ours
  }
}

/** Returns the request id for a UI message or, with a `nonce` of 8 characters, for an edit of this message. */
export function requestIdOf(uiId: string, nonce = ""): string {
  const more = nonce ? `${nonce}-` : "";
  if (/^[A-Za-z0-9_-]+$/.test(uiId)) return `u${nonce ? "e" : "i"}-${more}${uiId}`;
  const binary = String.fromCharCode(...new TextEncoder().encode(uiId));
  const word = btoa(binary).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
  return `u${nonce ? "f" : "b"}-${more}${word}`;
}

/** Returns all UI messages of the active path. */
export function uiMessages(state: ChatState): UIMessage[] {
  const found: UIMessage[] = [];
  const path = shown(state);
  for (let index = 0; index < path.length; ) {
    const message = path[index] as Message;
    if (message.role === "user") {
      found.push({ id: uiIdOf(message), role: "user", parts: contentParts(message) });
      index += 1;
      continue;
    }
    let end = index;
    while (end < path.length && path[end]?.role !== "user") end += 1;
    const turn = path.slice(index, end);
    const first = turn.find(({ role }) => role === "assistant" || role === "error");
    if (first) found.push({ id: first.message_id, role: "assistant", parts: turnParts(state, turn).map(({ part }) => part) });
    index = end;
  }
  return found;
}

/**
 * Returns the messages from the user message `userId` (by default the last) to the next user message, without these two
 * messages.
 */
export function turnAfter(state: ChatState, userId?: string): Message[] {
  const path = shown(state);
  const begin = path.findLastIndex(({ role, message_id }) => role === "user" && (!userId || message_id === userId));
  if (begin === -1) return userId ? [] : path;
  const rest = path.slice(begin + 1);
  const end = rest.findIndex(({ role }) => role === "user");
  return end === -1 ? rest : rest.slice(0, end);
}

function shown(state: ChatState): Message[] {
  return activePath(state).filter(({ hidden }) => !hidden);
}

function contentParts(message: Message): UIPart[] {
  if (typeof message.content === "string") return [{ type: "text", text: message.content }];
  return message.content.flatMap((part): UIPart[] => {
    if (part.type === "text") return [{ type: "text", text: part.text }];
    if (part.type !== "image_url") return [];
    const { url, mime } = part.image_url;
    return [{ type: "file", mediaType: mime ?? /^data:([^;,]+)/.exec(url)?.[1] ?? "image/*", url }];
  });
}

/** Returns whether the open run waits for an answer from a page. */
export function isAtPause({ runtime }: ChatState): boolean {
  if (runtime.pause_reasons.length > 0) return true;
  const calls = new Set((runtime.ide_calls ?? []).map((call) => call.tool_call_id));
  return calls.size > 0 && (runtime.tools ?? []).every((tool) => calls.has(tool.tool_call_id));
}

/** Returns the parts of an answer, in their order. */
export function turnParts(state: ChatState, turn: readonly Message[]): Named[] {
  const found: Named[] = [];
  const calls = new Map<string, UIPart>();
  const { runtime, draft } = state;
  const ours = new Set((runtime.ide_calls ?? []).map((call) => call.tool_call_id));
  const isPausing = !isAtRest(state) && turn.at(-1)?.message_id === state.path.at(-1) && isAtPause(state);
  /**
   * Whether it is known which side carries out the call. While this is unknown, a page must not carry out the call
   * itself.
   */
  const isPlaced = (id: string) =>
    isPausing || isAtRest(state) || ours.has(id) || (runtime.tools ?? []).some((tool) => tool.tool_call_id === id && tool.status !== "queued");
  for (const message of turn) {
    const id = message.message_id;
    if (message.role === "assistant") {
      const progress = { state: draft?.message.message_id === id ? "streaming" : "done" };
      found.push({ key: id, part: { type: "step-start" } });
      if (message.reasoning_content) {
        found.push({ key: `${id}-reasoning`, part: { type: "reasoning", text: message.reasoning_content, ...progress } });
      }
      if (textOf(message)) found.push({ key: `${id}-text`, part: { type: "text", text: textOf(message), ...progress } });
      for (const [index, citation] of (message.citations ?? []).entries()) {
        const url = citation["url"] ?? citation["uri"];
        if (typeof url === "string" && /^https?:/.test(url)) {
          found.push({ key: `${id}-source-${index}`, part: { type: "source-url", sourceId: url, url, title: citation["title"] } });
        }
      }
      for (const call of message.tool_calls ?? []) {
        const isWritten = progress.state === "done";
        const isPlacedHere = isWritten && isPlaced(call.id);
        const part: UIPart = {
          type: `tool-${call.function.name}`,
          toolCallId: call.id,
          state: isPlacedHere ? "input-available" : "input-streaming",
          ...(isWritten && { input: argumentsOf(call.function.arguments) }),
          ...(isPlacedHere && !ours.has(call.id) && { providerExecuted: true }),
        };
        calls.set(call.id, part);
        found.push({ key: `call ${call.id}`, part });
      }
      for (const payload of state.payloads) {
        if (payload.message_id !== id) continue;
        const { data, summary, source, approval } = payload;
        const type = `data-${payload.payload_type.replaceAll(/[^A-Za-z0-9_.-]/g, "_").slice(0, 59)}`;
        found.push({
          key: `payload ${payload.payload_id}`,
          part: { type, id: payload.payload_id, data: { data, summary, source, ...(approval && { approval }) } },
        });
      }
    } else if (message.role === "tool") {
      Object.assign(calls.get(message.tool_call_id ?? "") ?? {}, outputOf(message));
    }
  }
  const asked = new Set(runtime.pause_reasons.filter(({ type }) => type !== "question").map(({ tool_call_id }) => tool_call_id));
  for (const [id, part] of isPausing ? calls : []) {
    if (part["state"] !== "input-available" || ours.has(id) || asked.has(id)) continue;
    Object.assign(part, { state: "output-available", output: PENDING });
  }
  for (const reason of runtime.pause_reasons) ask(found, calls, reason);
  return found;
}

function ask(found: Named[], calls: Map<string, UIPart>, reason: PauseReason): void {
  let part = calls.get(reason.tool_call_id);
  if (reason.type === "question" || !part) {
    const input = { tool: reason.tool_name, ...(reason.question ?? { text: reason.command }) };
    part = { type: "dynamic-tool", toolName: reason.type, toolCallId: reason.tool_call_id, input, state: "input-available" };
    found.push({ key: `call ${reason.tool_call_id}`, part });
  }
  if (reason.type === "question") return;
  Object.assign(part, { state: "approval-requested", approval: { id: approvalIdOf(reason) } });
}

/** Returns the id of an approval, which contains the hash of the shown arguments. */
export function approvalIdOf(reason: PauseReason): string {
  return `${reason.tool_call_id}.${reason.input_hash ?? ""}`;
}

function argumentsOf(text: string): unknown {
  try {
    return JSON.parse(text || "{}");
  } catch {
    return text;
  }
}

function outputOf(message: Message): Record<string, unknown> {
  const text = textOf(message);
  if (!message.tool_failed) return { state: "output-available", output: text };
  if (text.startsWith("The call was denied by user.") || text.endsWith("is denied by policy.")) {
    return { state: "output-denied", approval: { id: `${message.tool_call_id}.`, approved: false, reason: text } };
  }
  return { state: "output-error", errorText: text };
}
