/**
 * An assistant in VS Code: this window joins a chat, and carries out the tools of an editor.
 *
 * The client keeps and resumes the connection, claims each call so that only one of two windows carries out the call,
 * and keeps messages that the user sends offline. This file names the tools, and connects the chat to the window.
 */

import * as vscode from "vscode";
import { connect, newId, type Client } from "threadcast-client";

import { Conversation } from "./conversation.js";
import { applyEdit, openFile } from "./editor.js";
import { Questions } from "./questions.js";

const TOKEN = "threadcast.token";
const CHAT = "threadcast.chat";

let client: Client | undefined;

export async function activate(context: vscode.ExtensionContext): Promise<void> {
  const settings = vscode.workspace.getConfiguration("threadcast");
  const token = await context.secrets.get(TOKEN);
  client = connect({ url: settings.get<string>("url"), ...(token ? { token } : {}) });
  const chat = client.chat(settings.get<string>("chat") || (await chatOf(context)));

  chat.onToolCall("open_file", openFile);
  chat.onToolCall("apply_edit", applyEdit);

  const output = vscode.window.createOutputChannel("Threadcast");
  const status = vscode.window.createStatusBarItem(vscode.StatusBarAlignment.Right);
  status.command = "threadcast.show";
  status.show();
  const conversation = new Conversation(chat, output, status);
  const questions = new Questions(chat);
  chat.onEvent((event) => conversation.take(event));
  chat.onRefused((_, wrong) => void vscode.window.showErrorMessage(`Threadcast: ${wrong.message}`));
  chat.subscribe(() => {
    conversation.look();
    questions.look();
  });

  const ask = async (said?: string) => {
    const text = said ?? (await vscode.window.showInputBox({ prompt: "What should the assistant do?" }));
    if (text?.trim()) chat.send(text);
  };
  context.subscriptions.push(
    output,
    status,
    vscode.commands.registerCommand("threadcast.ask", ask),
    vscode.commands.registerCommand("threadcast.token", () => setToken(context)),
    vscode.commands.registerCommand("threadcast.stop", () => chat.send({ type: "abort" })),
    vscode.commands.registerCommand("threadcast.show", () => output.show()),
  );
}

export function deactivate(): void {
  client?.close();
}

/** Returns the chat of this workspace; a new one is chosen the first time. */
async function chatOf(context: vscode.ExtensionContext): Promise<string> {
  const known = context.workspaceState.get<string>(CHAT);
  if (known) return known;
  const id = `code-${newId().slice(0, 12)}`;
  await context.workspaceState.update(CHAT, id);
  return id;
}

/** Stores a token in the editor's keychain, for servers that require one. */
async function setToken(context: vscode.ExtensionContext): Promise<void> {
  const token = await vscode.window.showInputBox({ prompt: "Token for the Threadcast server", password: true });
  if (token === undefined) return;
  await (token ? context.secrets.store(TOKEN, token) : context.secrets.delete(TOKEN));
  await vscode.commands.executeCommand("workbench.action.reloadWindow");
}
