/** Tests the pure parts of the conversation: turns, sources, words, and Markdown as HTML. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { failureOf, reasoningMsOf, type Message } from "threadcast-client";

import { sourcesOf } from "../src/thread/citations.ts";
import { directionOf } from "../src/thread/markdown/direction.ts";
import { toTrees } from "../src/thread/markdown/render.ts";
import { turnOf, turnsAfter, type Turn } from "../src/thread/turns.ts";
import { adviceOn, causeOf, ending, spent, usageOf } from "../src/thread/words.ts";
import { htmlOf } from "./html.ts";

function toHtml(...asked: Parameters<typeof toTrees>): string {
  return htmlOf(toTrees(...asked));
}

function message(role: string, message_id: string, more: Partial<Message> = {}): Message {
  return { role, message_id, content: message_id, ...more };
}

test("rounds with tools between them are one answer", () => {
  const turns = turnsAfter([], [
    message("user", "q"),
    message("assistant", "a1"),
    message("tool", "t1"),
    message("assistant", "a2"),
    message("event", "e"),
    message("user", "hidden", { hidden: true }),
    message("assistant", "a3"),
  ]);
  assert.deepEqual(
    turns.map((turn) => [turn.kind, turn.id, turn.messages.length]),
    [["user", "q", 1], ["answer", "a1", 2], ["note", "e", 1], ["answer", "a3", 1]],
  );
  assert.equal(turnOf(turns, "a2"), 1);
  assert.equal(turnOf(turns, "t1"), -1);
});

test("turns whose messages are the same are the same, so that only the growing one is drawn", () => {
  const messages = [message("user", "q"), message("assistant", "a"), message("user", "r"), message("assistant", "b")];
  const before = turnsAfter([], messages);
  assert.equal(turnsAfter(before, [...messages]), before);
  const after = turnsAfter(before, [...messages.slice(0, 3), message("assistant", "b", { content: "more" })]);
  assert.deepEqual(after.map((turn, at) => turn === before[at]), [true, true, true, false]);
});

test("sources of every provider are one numbered list without repetitions", () => {
  const sources = sourcesOf([
    { type: "url_citation", url: "https://a.example/x", title: "A" },
    { type: "url_citation", url_citation: { url: "https://a.example/x", title: "A again" } },
    { type: "grounding", web: { uri: "https://b.example/", title: "B" } },
    { type: "char_location", document_title: "Report.pdf", cited_text: "as said" },
    { type: "url_citation", url: "javascript:alert(1)", title: "Bad" },
    { type: "url_citation", url: "https://c.example/" },
    { type: "odd", url: 7, title: null },
  ]);
  assert.deepEqual(sources, [
    { title: "A", url: "https://a.example/x" },
    { title: "B", url: "https://b.example/" },
    { title: "Report.pdf", quote: "as said" },
    { title: "Bad" },
    { title: "c.example", url: "https://c.example/" },
  ]);
});

test("costs and reasons are said as people say them", () => {
  const priced = message("assistant", "a", { usage: { prompt_tokens: 5, completion_tokens: 1204, total_tokens: 1209, cost_usd: 0.0021 } });
  const both = usageOf([priced, message("assistant", "b", { usage: { prompt_tokens: 1, completion_tokens: 1, total_tokens: 2 } })]);
  assert.equal(both && spent(both), "1,205 tokens · $0.0021");
  assert.equal(usageOf([message("assistant", "a")]), null);
  assert.equal(ending(message("assistant", "a", { finish_reason: "stop" })), null);
  assert.equal(ending(message("assistant", "a", { finish_reason: "abort" })), "Stopped.");
});

test("HTML in a model's words is text", () => {
  const html = toHtml("a <img src=x onerror=alert(1)> b\n\n<script>alert(1)</script>\n\n<b onclick='x()'>c</b> d<br>e");
  assert.ok(!/<(?:img|script|b)\b/.test(html), html);
  assert.ok(html.includes("&lt;script&gt;") && html.includes("d<br>e"), html);
});

test("words cannot break out of the attributes that they are put into", () => {
  const html = toHtml('![a"><script>](https://x.example/"onload="alert(1))\n\n```"><script>\ncode\n```');
  assert.ok(!html.includes("<script>") && !/"onload/.test(html), html);
});

test("tags that are let through hold what follows them, and those that nothing ends or began do no harm", () => {
  assert.equal(toHtml("a<sub>1<kbd>x</sub> b</kbd> <u>c <BR/>d"), `<p dir="ltr">a<sub>1<kbd>x</kbd></sub> b <u>c <br>d</u></p>`);
  assert.equal(toHtml("**a<mark>b** c</mark>"), `<p dir="ltr"><strong>a<mark>b</mark></strong> c</p>`);
});

test("images of other servers wait until they are asked for, ours are shown", () => {
  assert.match(toHtml("![cat](https://x.example/c.png)"), /<button[^>]*data-image="https:\/\/x\.example\/c\.png"/);
  assert.equal(toHtml("![a stream](/v1/chats/feed)"), `<p dir="ltr">a stream</p>`);
  assert.match(toHtml("![own](/v1/chats/c/blobs/1)"), /<img src="\/v1\/chats\/c\/blobs\/1" alt="own"/);
  assert.match(toHtml("![odd](javascript:alert(1))"), /^<p dir="ltr">odd<\/p>/);
  assert.match(toHtml("![odd](//x.example/c.png)"), /^<p dir="ltr">odd<\/p>/);
});

test("a link that is defined elsewhere is found", () => {
  assert.match(toHtml("see [one][1]", "[1]: https://a.example"), /href="https:\/\/a\.example"/);
});

test("a text runs the way of its first letter that is neither code nor an address", () => {
  const ways: [string, string][] = [
    ["hello שלום", "ltr"],
    ["שלום hello", "rtl"],
    ["- `npm install` מתקין", "rtl"],
    ["> [קישור](https://example.org/) here", "rtl"],
    ["1. https://example.org/ عربي", "rtl"],
    ["```js\ncode\n```\n\nпривет", "ltr"],
    ["| ۱ | 2 |", ""],
    ["- [ ] *משימה*", "rtl"],
    ["&nbsp;<br> فارسی", "rtl"],
    ["", ""],
  ];
  for (const [text, way] of ways) assert.equal(directionOf(text), way, text);
});

test("blocks of Markdown say which way they run, and code runs from left to right", () => {
  const html = toHtml("# שלום\n\nwords `קוד`\n\n- פריט\n- two\n\n> ציטוט\n\n| א | b |\n| - | -: |\n| ג | 1 |\n\n```py\nx\n```\n");
  for (const tag of [
    '<h1 dir="rtl">', '<p dir="ltr">words <code dir="ltr">קוד</code></p>', '<ul dir="rtl">', '<li dir="rtl">פריט', '<li dir="ltr">two',
    '<blockquote dir="rtl">', '<div tabindex="0" dir="rtl"><table>', '<th dir="rtl">א', '<td align="right">1', '<figure dir="ltr">',
  ]) assert.ok(html.includes(tag), `${tag} in ${html}`);
});

const FAILED = { failure: { code: "timeout", message: "Late.", status: 504, retry_at: 5, reason: "slow", model: "a/b" } };

test("a failure stands with the last message of its turn until an answer follows it", () => {
  const turns = turnsAfter([], [
    message("user", "q1", { extra: FAILED }),
    message("user", "q2", { extra: FAILED }),
    message("assistant", "a2"),
    message("tool", "t2", { extra: FAILED }),
    message("user", "q3"),
    message("assistant", "a3", { finish_reason: "error" }),
    message("user", "q4"),
    message("assistant", "a4", { finish_reason: "content_filter" }),
    message("user", "q5"),
  ]);
  assert.deepEqual(
    turns.map((turn) => [turn.id, turn.failed?.message_id, causeOf(turn, null)?.code]),
    [
      ["q1", "q1", "timeout"], ["q2", undefined, undefined], ["a2", "t2", "timeout"], ["q3", undefined, undefined],
      ["a3", undefined, "stream_error"], ["q4", undefined, undefined], ["a4", undefined, "content_filter"], ["q5", undefined, undefined],
    ],
  );
  assert.deepEqual(causeOf(turns[0] as Turn, null), { code: "timeout", message: "Late.", status: 504, retryAt: 5, reason: "slow", model: "a/b" });
  assert.deepEqual(causeOf(turns[7] as Turn, "Something failed."), { code: "", message: "Something failed." });
  const [whole] = turnsAfter([], [message("assistant", "a6", { finish_reason: "stop" })]);
  assert.equal(causeOf(whole as Turn, "Something failed on another branch."), null);
  assert.equal(turnsAfter(turns, turns.flatMap((turn) => [...turn.messages, ...(turn.failed?.role === "tool" ? [turn.failed] : [])])), turns);
});

test("what stands in a message as a failure and is none is not shown", () => {
  for (const failure of [null, "x", 7, [], {}, { code: "timeout" }, { code: 7, message: "m" }]) {
    assert.equal(failureOf(message("user", "q", { extra: { failure } })), null);
  }
  assert.deepEqual(failureOf(message("user", "q", { extra: { failure: { code: "c", message: "m", status: "x", reason: 7 } } })), { code: "c", message: "m" });
  for (const [status, retry_at, reasoning_ms] of [[-1, 1e300, 1e300], [200.5, -1, -1], [600, Number.NaN, Number.NaN]]) {
    const extra = { failure: { code: "c", message: "m", status, retry_at }, reasoning_ms };
    assert.deepEqual(failureOf(message("user", "q", { extra })), { code: "c", message: "m" });
    assert.equal(reasoningMsOf(message("assistant", "a", { extra })), null);
  }
});

test("people are told what they can do about each failure of a run, and when", () => {
  const codes = [
    "auth_failed", "connection", "content_filter", "context_overflow", "crash_loop", "empty_answer", "internal", "interrupted",
    "llm_error", "max_tool_rounds", "poison", "rate_limited", "stream_error", "timeout", "too_large", "unavailable",
  ];
  const advice = codes.map((code) => adviceOn({ code, message: "" }, 0));
  for (const each of advice) assert.match(each, /^[A-Z].{15,}\.$/);
  assert.equal(adviceOn({ code: "aborted", message: "" }, 0), "");
  assert.equal(adviceOn({ code: "of a newer server", message: "" }, 0), "Try again.");
  const at = new Date(2026, 3, 5, 14, 5, 7).getTime();
  const said = adviceOn({ code: "rate_limited", message: "", retryAt: at }, at - 20_000);
  assert.match(said, /asked again at .*05.07/);
  assert.match(adviceOn({ code: "rate_limited", message: "", retryAt: at }, at - 86_400_000), / on .*2026|5/);
  assert.match(adviceOn({ code: "rate_limited", message: "", retryAt: at }, at), /^Wait a moment/);
});
