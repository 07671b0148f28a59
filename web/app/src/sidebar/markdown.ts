/** Writes the active path of a chat as Markdown. Pure. */

import { textOf, type Message, type Snapshot } from "threadcast-client";
import { titleOf } from "../ui/title.ts";

const WHO: Record<string, string> = { user: "You", assistant: "Assistant", system: "System" };

export function markdownOf(snapshot: Pick<Snapshot, "thread" | "messages">): string {
  const blocks = [`# ${titleOf(snapshot.thread.title).replace(/\s+/g, " ")}`];
  for (const message of snapshot.messages) {
    const who = WHO[message.role];
    if (who) blocks.push(`## ${who}`, ...blocksOf(message));
    else if (message.role === "tool") blocks.push(fenced(textOf(message), "Result"));
  }
  return blocks.filter(Boolean).join("\n\n") + "\n";
}

function blocksOf(message: Message): string[] {
  const calls = (message.tool_calls ?? []).map((call) => fenced(call.function.arguments, `Called \`${call.function.name}\``));
  return [textOf(message).trim(), ...attached(message), ...calls];
}

function attached(message: Message): string[] {
  if (typeof message.content === "string") return [];
  return message.content.flatMap((part) =>
    part.type === "file" ? [`*Attached: ${part.name}*`] : part.type === "text" ? [] : [`*Attached: ${part.type === "image_url" ? "an image" : "a recording"}*`],
  );
}

/** Encloses a text in a fence that is longer than any fence in it (CommonMark §4.5). */
function fenced(text: string, title: string): string {
  const longest = Math.max(2, ...[...text.matchAll(/`+/g)].map(([run]) => run.length));
  const fence = "`".repeat(longest + 1);
  return `${title}:\n\n${fence}\n${text}\n${fence}`;
}

/** Returns a file name with the letters and digits of the title, and hyphens for other characters. */
export function fileName(title: string, ending: string): string {
  const plain = title.normalize("NFC").replace(/[^\p{L}\p{N}]+/gu, "-").replace(/^-+|-+$/g, "").slice(0, 80);
  return `${plain || "chat"}.${ending}`;
}
