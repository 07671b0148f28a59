/**
 * Asks for approval before a tool runs, and shows the questions of agents and tools. The question may be answered here
 * or in a browser, and the first answer takes effect. VS Code cannot close a message, so an answer to a question that
 * is already decided is not sent.
 */

import * as vscode from "vscode";
import type { Chat, PauseReason } from "threadcast-client";

const ALLOW = "Allow";
const ALWAYS = "Always in this chat";
const DENY = "Deny";
const ANSWER = "Answer";
const REJECT = "Reject";

export class Questions {
  private readonly asked = new Set<string>();

  constructor(private readonly chat: Chat) {}

  /** Asks the questions that this window has not shown yet. */
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
    if (reason.type === "question") return this.askPerson(reason);
    const what = reason.command || reason.tool_name;
    const choice = await vscode.window.showWarningMessage(`May the assistant do this? ${what}`, ALLOW, ALWAYS, DENY);
    if (!choice || !this.asked.has(keyOf(reason))) return; // dismissed: the call continues to wait
    this.chat.decide(reason.tool_call_id, choice !== DENY, choice === ALWAYS ? { remember: "tool" } : {});
  }

  /** Shows the question and asks for one of its options, a text, or JSON. */
  private async askPerson(reason: PauseReason): Promise<void> {
    const { text, options, schema } = reason.question ?? { text: reason.command ?? "" };
    const who = reason.tool_name ? `${reason.tool_name} asks` : "The assistant asks";
    const choice = await vscode.window.showInformationMessage(`${who}: ${text}`, ANSWER, REJECT);
    if (!choice || !this.asked.has(keyOf(reason))) return; // dismissed: the question stays open
    if (choice === REJECT) {
      this.chat.decide(reason.tool_call_id, false);
      return;
    }
    const typed = options?.length
      ? await vscode.window.showQuickPick([...options], { placeHolder: text })
      : await vscode.window.showInputBox({ prompt: schema ? `JSON: ${JSON.stringify(schema)}` : text });
    if (typed === undefined || !this.asked.has(keyOf(reason))) {
      this.asked.delete(keyOf(reason)); // it is shown again with the next change of the chat
      return;
    }
    const sent = this.chat.decide(reason.tool_call_id, true, { edited_input: { answer: schema ? parsed(typed) : typed } });
    sent.acked.catch((wrong: Error) => {
      void vscode.window.showErrorMessage(wrong.message);
      if (this.asked.delete(keyOf(reason))) this.look(); // the answer does not fit, so the question is still open
    });
  }
}

/** Returns the JSON value in a text, or the text itself if it is not JSON, so that the server reports the error. */
function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

/**
 * Returns a key that includes the arguments, because the server may ask about the same call again with other arguments.
 */
function keyOf({ tool_call_id, input_hash }: PauseReason): string {
  return `${tool_call_id} ${input_hash ?? ""}`;
}
