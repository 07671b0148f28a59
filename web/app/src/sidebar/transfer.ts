/** Exports chats, in the server's own format or as Markdown, and imports them. */

import type { ChatSnapshot, ImportReport } from "threadcast-client";

import { go } from "../state/route.ts";
import { client, notify, notifyOf } from "../state/session.ts";
import { save } from "../ui/own_file.ts";
import { fileName, markdownOf } from "./markdown.ts";

/**
 * The time limit of a transfer, enough for an import of 64 MiB over a slow connection; the server answers 10 s after it
 * has received the whole import.
 */
const TRANSFER_MS = 120_000;

export async function exportChat(chatId: string, title: string): Promise<void> {
  const answer = await transfer("GET", `/v1/chats/${chatId}/export`);
  if (answer) save(await answer.blob(), fileName(title, "jsonl"));
}

export async function exportMarkdown(chatId: string, title: string): Promise<void> {
  const answer = await transfer("GET", `/v1/chats/${chatId}`);
  if (!answer) return;
  const text = markdownOf((await answer.json()) as ChatSnapshot);
  save(new Blob([text], { type: "text/markdown" }), fileName(title, "md"));
}

export async function importChats(file: File): Promise<void> {
  const answer = await transfer("POST", "/v1/chats/import", file);
  if (!answer) return;
  const report = (await answer.json()) as ImportReport;
  const told = [
    counted(report.imported.length, "imported"),
    counted(report.accepted.length, "being imported"),
    counted(report.skipped.length, "already here"),
    ...report.failed.map(({ error }) => `not imported: ${error}`),
  ];
  const isHarmless = !report.failed.length;
  notify(told.filter(Boolean).join("; ") || "The file contains no chat.", { isHarmless });
  const only = [...report.imported, ...report.accepted, ...report.skipped];
  if (only.length === 1 && only[0]) go(only[0]);
}

function counted(count: number, what: string): string {
  return count ? `${count} ${count === 1 ? "chat" : "chats"} ${what}` : "";
}

async function transfer(method: string, path: string, body?: Blob): Promise<Response | null> {
  try {
    return await client.request(method, path, { body, signal: AbortSignal.timeout(TRANSFER_MS) });
  } catch (wrong) {
    notifyOf(wrong);
    return null;
  }
}
