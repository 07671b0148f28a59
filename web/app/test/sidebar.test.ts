/** Tests the list of chats (groups by day, search, marks for new messages) and the export of a chat as Markdown. */

import assert from "node:assert/strict";
import { test } from "node:test";

import type { ChatSummary, Message, Thread } from "threadcast-client";

import { byDay, markOf, matching, merged } from "../src/sidebar/groups.ts";
import { fileName, markdownOf } from "../src/sidebar/markdown.ts";

const chat = (id: string, last_active: number, more: Partial<ChatSummary> = {}): ChatSummary => ({
  id,
  title: id,
  state: "idle",
  model: "",
  mode: "agent",
  message_count: 2,
  queue_size: 0,
  created_at: 0,
  last_active,
  ...more,
});

test("chats are grouped by calendar days, and what is empty is left out", () => {
  const now = new Date(2026, 2, 10, 0, 30);
  const at = (...when: [number, number, number, number?, number?]) => new Date(...when).getTime();
  const chats = [
    chat("now", at(2026, 2, 10, 0, 10)),
    chat("minutes before midnight", at(2026, 2, 9, 23, 50)),
    chat("a week ago", at(2026, 2, 3, 0, 0)),
    chat("longer ago", at(2026, 2, 2, 23, 59)),
  ];
  const found = byDay(chats, now).map(({ name, chats: inIt }) => [name, inIt.map(({ id }) => id)]);
  assert.deepEqual(found, [
    ["Today", ["now"]],
    ["Yesterday", ["minutes before midnight"]],
    ["Last 7 days", ["a week ago"]],
    ["Older", ["longer ago"]],
  ]);
  assert.deepEqual(byDay([chat("now", now.getTime())], now).map(({ name }) => name), ["Today"]);
});

test("what the feed says of a chat holds over what was asked for before", () => {
  const live = [chat("b", 5, { title: "renamed" })];
  const both = merged(live, [chat("a", 9), chat("b", 1), chat("c", 5)]);
  assert.deepEqual(both.map(({ id, title }) => [id, title]), [["a", "a"], ["b", "renamed"], ["c", "c"]]);
  assert.deepEqual(matching(both, "  RENA ").map(({ id }) => id), ["b"]);
});

test("a row says the most urgent thing: that it asks, works, has failed, has news", () => {
  assert.equal(markOf(chat("a", 5, { state: "paused" }), 9), "asks");
  assert.equal(markOf(chat("a", 5, { state: "executing_tools" }), 0), "working");
  assert.equal(markOf(chat("a", 5, { state: "error" }), 4), "failed");
  assert.equal(markOf(chat("a", 5, { state: "error" }), 5), "quiet");
  assert.equal(markOf(chat("a", 5), 4), "unread");
  assert.equal(markOf(chat("a", 5), 5), "quiet");
});

test("a chat as Markdown: who said what, what was attached, and calls in fences that their text cannot end", () => {
  const messages = [
    { role: "user", message_id: "1", content: [{ type: "text", text: "Look" }, { type: "file", name: "a.csv", mime: "text/csv" }] },
    { role: "assistant", message_id: "2", content: "", tool_calls: [{ id: "x", index: 0, function: { name: "read", arguments: "{}" } }] },
    { role: "tool", message_id: "3", content: "```js\n1\n```" },
    { role: "assistant", message_id: "4", content: "Done." },
    { role: "context_file", message_id: "5", content: "nobody said this" },
  ] as Message[];
  const text = markdownOf({ thread: { title: "A\nB" } as Thread, messages });
  assert.equal(
    text,
    "# A B\n\n## You\n\nLook\n\n*Attached: a.csv*\n\n## Assistant\n\nCalled `read`:\n\n```\n{}\n```\n\n" +
      "Result:\n\n````\n```js\n1\n```\n````\n\n## Assistant\n\nDone.\n",
  );
  assert.equal(fileName("Été: a/b?", "md"), "Été-a-b.md");
  assert.equal(fileName("///", "md"), "chat.md");
});
