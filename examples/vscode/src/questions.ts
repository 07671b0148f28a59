/**
 * Tools that ask first. Whoever answers, here or in a browser, the log says so and every other question about the same
 * call is void: a message of VS Code cannot be taken back, so an answer to a question that is gone is not sent.
 */

import * as vscode from "vscode";
import type { Chat, PauseReason } from "threadcast-client";

const ALLOW = "Allow";
const ALWAYS = "Always in this chat";
const DENY = "Deny";

export class Questions {
  private readonly asked = new Set<string>();

  constructor(private readonly chat: Chat) {}

  /** Ask what has not been asked yet. */
  look(): void {
    const open = this.chat.state.runtime.pause_reasons.filter((reason) => reason.tool_call_id);
    const keys = new Set(open.map(keyOf));
    for (const key of this.asked) if (!keys.has(key)) this.asked.delete(key);
    for (const reason of open) {
      if (this.asked.has(keyOf(reason))) continue;
      this.asked.add(keyOf(reason));
      void this.ask(reason);
    }
  }

  private async ask(reason: PauseReason): Promise<void> {
    const what = reason.command || reason.tool_name;
    const choice = await vscode.window.showWarningMessage(`May the assistant do this? ${what}`, ALLOW, ALWAYS, DENY);
    if (!choice || !this.asked.has(keyOf(reason))) return; // dismissed: it goes on waiting, here and elsewhere
    this.chat.decide(reason.tool_call_id, choice !== DENY, choice === ALWAYS ? { remember: "tool" } : {});
  }
}

/** The same call with other arguments is another question. */
function keyOf({ tool_call_id, input_hash }: PauseReason): string {
  return `${tool_call_id} ${input_hash ?? ""}`;
}
