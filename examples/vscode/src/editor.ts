/**
 * The tools of the assistant in this window: one reads a file with its unsaved changes, the other replaces a text in a
 * file. Both work only inside the workspace. An edit is one undo step, and the file is saved.
 */

import * as vscode from "vscode";
import type { JsonObject, ToolAnswer } from "threadcast-client";

export async function openFile({ path }: JsonObject): Promise<string> {
  const document = await vscode.workspace.openTextDocument(inside(path));
  return document.getText();
}

export async function applyEdit({ path, old, new: replacement }: JsonObject): Promise<ToolAnswer> {
  const uri = inside(path);
  const document = await vscode.workspace.openTextDocument(uri);
  const [text, wanted] = [document.getText(), String(old)];
  const at = text.indexOf(wanted);
  if (!wanted || at < 0) throw new Error(`${path} does not hold that text. Open it again and look.`);
  if (text.indexOf(wanted, at + 1) >= 0) throw new Error(`That text occurs more than once in ${path}; include more of the text around it.`);
  const edit = new vscode.WorkspaceEdit();
  const range = new vscode.Range(document.positionAt(at), document.positionAt(at + wanted.length));
  edit.replace(uri, range, String(replacement));
  if (!(await vscode.workspace.applyEdit(edit))) throw new Error(`${path} could not be changed; it may be read-only.`);
  await document.save();
  return { content: `${path} is changed.`, filesChanged: [String(path)] };
}

function inside(path: unknown): vscode.Uri {
  const root = vscode.workspace.workspaceFolders?.[0]?.uri;
  if (!root) throw new Error("No folder is open in the editor.");
  const uri = vscode.Uri.joinPath(root, String(path));
  if (!uri.path.startsWith(root.path.replace(/\/?$/, "/"))) throw new Error(`${path} is not in the workspace.`);
  return uri;
}
