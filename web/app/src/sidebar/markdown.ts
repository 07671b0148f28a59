/** A chat as a text that people read elsewhere: the active path, as Markdown. Pure. */

import { textOf, type Message, type Snapshot } from "threadcast-client";

const WHO: Record<string, string> = { user: "You", assistant: "Assistant", system: "System" };

export function markdownOf(snapshot: Pick<Snapshot, "thread" | "messages">): string {
  const blocks = [`# ${(snapshot.thread.title || "New Chat").replace(/\s+/g, " ")}`];
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

/** In a fence that is longer than any in the text (CommonMark §4.5). */
function fenced(text: string, title: string): string {
  const longest = Math.max(2, ...[...text.matchAll(/`+/g)].map(([run]) => run.length));
  const fence = "`".repeat(longest + 1);
  return `${title}:\n\n${fence}\n${text}\n${fence}`;
}

/** A name for a file: letters and digits of any language, the rest as hyphens. */
export function fileName(title: string, ending: string): string {
  const plain = title.normalize("NFC").replace(/[^\p{L}\p{N}]+/gu, "-").replace(/^-+|-+$/g, "").slice(0, 80);
  return `${plain || "chat"}.${ending}`;
}
