/**
 * Carries out the calls of client tools, such as an editor's (PROTOCOL §12).
 *
 * It reads only the chat's state, so it also finds calls that were made while the client was offline. A call starts
 * only after it was claimed, the claim is renewed while the handler runs, and the handler's signal aborts when the call
 * is no longer wanted.
 */

import type { RetryPolicy } from "./backoff.js";
import type { Sendable } from "./chat.js";
import type { Sent } from "./sent.js";
import { sleep } from "./clock.js";
import type { ChatState } from "./state.js";
import type { IdeCall, JsonObject } from "./types.js";

/** The result of a handler that returns more than a text. With `failed` the model learns that the call failed. */
export interface ToolAnswer {
  content: string;
  failed?: boolean;
  filesChanged?: string[];
}

/**
 * Carries out one call. `signal` aborts when the call is no longer wanted. An error that the handler throws becomes a
 * failed result that the model reads.
 */
export type Handler = (args: JsonObject, signal: AbortSignal) => string | ToolAnswer | Promise<string | ToolAnswer>;

/**
 * The pause between attempts to claim a call that another client has: a quarter of the time that a claim lasts
 * (PROTOCOL §12).
 */
const OTHERS_CLAIM_MS = 15_000;

interface Chat {
  readonly state: ChatState;
  send(command: Sendable): Sent;
}

export class ToolCalls {
  private readonly handlers = new Map<string, Handler>();
  private readonly calls = new Map<string, AbortController>();

  constructor(
    private readonly chat: Chat,
    private readonly claimer: string,
    private readonly retryPolicy: RetryPolicy,
  ) {}

  add(name: string, handler: Handler): void {
    this.handlers.set(name, handler);
    this.look();
  }

  /** Starts the calls that the new state wants, and aborts the others. */
  look(): void {
    const waiting = this.chat.state.runtime.ide_calls ?? [];
    for (const [id, call] of this.calls) {
      if (waiting.some((other) => other.tool_call_id === id)) continue;
      this.calls.delete(id);
      call.abort();
    }
    for (const call of waiting) {
      const handler = this.handlers.get(call.tool_name);
      if (!handler || this.calls.has(call.tool_call_id)) continue;
      const control = new AbortController();
      this.calls.set(call.tool_call_id, control);
      void this.carryOut(call, handler, control.signal);
    }
  }

  close(): void {
    for (const call of this.calls.values()) call.abort();
    this.calls.clear();
    this.handlers.clear();
  }

  private async carryOut(call: IdeCall, handler: Handler, signal: AbortSignal): Promise<void> {
    while (!(await this.claim(call)) && !signal.aborted) await sleep(OTHERS_CLAIM_MS, signal);
    if (signal.aborted) return;
    const renewal = setInterval(() => void this.claim(call), this.retryPolicy.claimRenewedMs);
    let answer: ToolAnswer;
    try {
      const said = await handler(call.args, signal);
      answer = typeof said === "string" ? { content: said } : said;
    } catch (wrong) {
      answer = { content: wrong instanceof Error ? wrong.message : String(wrong), failed: true };
    } finally {
      clearInterval(renewal);
    }
    if (signal.aborted) return;
    this.chat.send({
      type: "ide_tool_result",
      tool_call_id: call.tool_call_id,
      content: answer.content,
      tool_failed: answer.failed ?? false,
      files_changed: answer.filesChanged ?? [],
    });
  }

  /** Claims a call, and returns whether this client has it now. */
  private async claim(call: IdeCall): Promise<boolean> {
    try {
      const { tool_call_id } = call;
      await this.chat.send({ type: "ide_tool_claim", tool_call_id, claimer: this.claimer }).acked;
      return true;
    } catch {
      return false; // another client has the call, or the chat has ended
    }
  }
}
