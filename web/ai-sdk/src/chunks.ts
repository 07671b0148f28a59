/**
 * Chunks of the UI message stream, made from the states of a chat: each new state gives the chunks that the page does
 * not have yet.
 */

import { PENDING, type Named, type UIPart } from "./messages.js";

/** A chunk as `uiMessageChunkSchema` of npm `ai` describes it. */
export type Chunk = { type: string; [field: string]: unknown };

interface Shown {
  length: number;
  isDone: boolean;
  state: unknown;
  approval: unknown;
  output: unknown;
  json: string;
}

export class Chunks {
  private readonly shown = new Map<string, Shown>();
  private isBegun = false;
  private isStepOpen = false;

  /** `known` are the parts that the page has already. */
  constructor(known: readonly Named[] = []) {
    for (const { key, part } of known) {
      const { id } = (part["approval"] ?? {}) as { id?: unknown };
      this.shown.set(key, { length: textLength(part), isDone: true, state: part["state"], approval: id, output: part["output"], json: JSON.stringify(part) });
    }
  }

  /** Returns the chunks for the new content of the message `id`. */
  next(id: string, parts: readonly Named[]): Chunk[] {
    const chunks: Chunk[] = [];
    if (!this.isBegun) chunks.push({ type: "start", messageId: id });
    this.isBegun = true;
    for (const { key, part } of parts) {
      const before = this.shown.get(key);
      const { id: approval } = (part["approval"] ?? {}) as { id?: unknown };
      if (part.type === "step-start") {
        if (!before) chunks.push(...this.closeStep(), { type: "start-step" });
        if (!before) this.isStepOpen = true;
      } else if (part.type === "text" || part.type === "reasoning") {
        chunks.push(...grown(key, part, before));
      } else if (typeof part["toolCallId"] === "string") {
        chunks.push(...called(part, before, approval));
      } else if (before?.json !== JSON.stringify(part)) {
        chunks.push(part);
      }
      const isDone = (before?.isDone ?? false) || part["state"] === "done";
      this.shown.set(key, { length: textLength(part), isDone, state: part["state"], approval, output: part["output"], json: JSON.stringify(part) });
    }
    return chunks;
  }

  /** Returns the last chunks. */
  end(finishReason: string, error?: string): Chunk[] {
    const opening: Chunk[] = this.isBegun ? [] : [{ type: "start" }];
    const failure: Chunk[] = error === undefined ? [] : [{ type: "error", errorText: error }];
    return [...opening, ...this.closeStep(), ...failure, { type: "finish", finishReason }];
  }

  /** Opens an empty step, so that the AI SDK does not send the answers in the last step again. */
  emptyStep(): Chunk[] {
    if (this.isStepOpen) return [];
    this.isStepOpen = true;
    return [{ type: "start-step" }];
  }

  private closeStep(): Chunk[] {
    if (!this.isStepOpen) return [];
    this.isStepOpen = false;
    return [{ type: "finish-step" }];
  }
}

function textLength(part: UIPart): number {
  return typeof part["text"] === "string" ? part["text"].length : 0;
}

function grown(key: string, part: UIPart, before: Shown | undefined): Chunk[] {
  if (before?.isDone) return [];
  const chunks: Chunk[] = [];
  if (!before) chunks.push({ type: `${part.type}-start`, id: key });
  const delta = String(part["text"]).slice(before?.length ?? 0);
  if (delta) chunks.push({ type: `${part.type}-delta`, id: key, delta });
  if (part["state"] === "done") chunks.push({ type: `${part.type}-end`, id: key });
  return chunks;
}

function called(part: UIPart, before: Shown | undefined, approval: unknown): Chunk[] {
  const { toolCallId, state, input } = part;
  const dynamic = part.type === "dynamic-tool";
  const toolName = dynamic ? part["toolName"] : part.type.slice("tool-".length);
  const wasPending = before?.output === PENDING;
  const isPending = part["output"] === PENDING;
  if (before?.state === state && before?.approval === approval && wasPending === isPending) return [];
  if (state === "input-streaming") return [{ type: "tool-input-start", toolCallId, toolName }];
  const chunks: Chunk[] = [];
  if (!before || before.state === "input-streaming" || wasPending) {
    const more = { ...(dynamic && { dynamic }), ...(part["providerExecuted"] === true && { providerExecuted: true }) };
    chunks.push({ type: "tool-input-available", toolCallId, toolName, input, ...more });
  }
  if (state === "approval-requested") chunks.push({ type: "tool-approval-request", approvalId: approval, toolCallId });
  if (state === "output-available") chunks.push({ type: "tool-output-available", toolCallId, output: part["output"] });
  if (state === "output-error") chunks.push({ type: "tool-output-error", toolCallId, errorText: part["errorText"] });
  if (state === "output-denied") chunks.push({ type: "tool-output-denied", toolCallId });
  return chunks;
}
