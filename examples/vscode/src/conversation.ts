/** Writes the conversation to an output channel: each complete message, and changes of the connection. */

import type * as vscode from "vscode";
import { textOf, type Chat, type ChatEvent } from "threadcast-client";

export class Conversation {
  private connection = "";
  private shown = "";

  constructor(
    private readonly chat: Chat,
    private readonly output: vscode.OutputChannel,
    private readonly status: vscode.StatusBarItem,
  ) {}

  /** Handles one event of the chat. */
  take(event: ChatEvent): void {
    if (event.type === "snapshot") {
      this.output.clear();
      for (const message of event.messages) this.write(message.role, textOf(message));
    } else if (event.type === "message_added") {
      this.write(event.message.role, textOf(event.message));
    } else if (event.type === "stream_finished" && event.finish_reason === "error") {
      this.output.appendLine("(the answer broke off)");
    }
  }

  /** Handles a change of the state or of the connection. */
  look(): void {
    const { state, held, reason } = this.chat.connection;
    const waiting = held > 0 ? `, ${held} not sent yet` : "";
    const doing = state === "live" ? this.chat.state.runtime.state.replaceAll("_", " ") : state.replaceAll("_", " ");
    const text = `$(comment-discussion) ${doing}${waiting}`;
    if (text !== this.shown) this.status.text = this.shown = text;
    if (state === this.connection) return;
    this.connection = state;
    if (state === "offline" && reason) this.output.appendLine(`(offline: ${reason})`);
  }

  private write(role: string, text: string): void {
    if (!text || role === "tool") return;
    this.output.appendLine(role === "user" ? `> ${text}` : text);
  }
}
