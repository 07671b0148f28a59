/**
 * Client tools: carries out the calls that the server wants done here, such as an editor's (PROTOCOL §12).
 *
 * It looks at the folded state alone, so a call that came while the line was down is found like any other. The rules: no
 * call is begun without its claim, a claim is renewed while the handler runs, and a handler whose call is no longer
 * wanted is told so by its signal.
 */

import type { Patience } from "./backoff.js";
import type { Sendable } from "./chat.js";
import type { Sent } from "./sent.js";
import { sleep } from "./clock.js";
import type { ChatState } from "./state.js";
import type { IdeCall, JsonObject } from "./types.js";

/** What a tool did, when a text alone does not say it. `failed`: the model is told so. */
export interface ToolAnswer {
  content: string;
  failed?: boolean;
  filesChanged?: string[];
}

/** `signal` ends when the call is not wanted any more. What it throws is a failed result, and the model reads it. */
export type Handler = (args: JsonObject, signal: AbortSignal) => string | ToolAnswer | Promise<string | ToolAnswer>;

/** How often to ask again for a call that another client has: a quarter of what a claim lasts (PROTOCOL §12). */
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
    private readonly patience: Patience,
  ) {}

  add(name: string, handler: Handler): void {
    this.handlers.set(name, handler);
    this.look();
  }

  /** The state has changed: begin what is wanted, and let go what is not. */
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
    const renewal = setInterval(() => void this.claim(call), this.patience.claimRenewedMs);
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

  /** Whether the call is ours. One that is gone is told of by the state. */
  private async claim(call: IdeCall): Promise<boolean> {
    try {
      const { tool_call_id } = call;
      await this.chat.send({ type: "ide_tool_claim", tool_call_id, claimer: this.claimer }).acked;
      return true;
    } catch {
      return false; // another has it, or the chat has ended
    }
  }
}
