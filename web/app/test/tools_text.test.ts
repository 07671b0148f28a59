/** Tests the texts, tables and differences for the arguments and results of tools. */

import assert from "node:assert/strict";
import { test } from "node:test";

import type { PayloadAdded } from "threadcast-client";

import { canonical, changesOf, diffLines, folded } from "../src/tools/diff.ts";
import { clip, fieldName, growingJson, prettyJson, summaryLine } from "../src/tools/format.ts";
import { pieces } from "../src/tools/links.ts";
import { approvalWords, beforeOf } from "../src/tools/previews.ts";
import { fileChange, isShortList, planEntries, readable, tableOf, workflowSteps } from "../src/tools/shape.ts";

test("one line says which call it is", () => {
  assert.equal(summaryLine({ expression: "6 * 7" }), "6 * 7");
  assert.equal(summaryLine({ to: "mara", text: "two\n  lines", empty: "" }), "to: mara, text: two lines");
  assert.equal(summaryLine({ actions: [{}, {}], tags: ["a", "b"] }), "actions: 2 items, tags: a, b");
  assert.equal(summaryLine({ a: 1 }, "a label"), "a label");
  assert.equal(summaryLine('{"unfinished": "te'), '{"unfinished": "te');
  assert.equal(summaryLine({ text: "x".repeat(500) }).length, 120);
});

test("a cut never leaves half of a character", () => {
  assert.equal(clip("ab🙂cd", 4), "ab…");
  assert.equal(clip("abcd", 4), "abcd");
});

test("names of fields are written as people write them", () => {
  assert.deepEqual(["rows_count", "rowsCount", "id", "URL"].map(fieldName), ["Rows count", "Rows count", "ID", "URL"]);
});

test("arguments that are still coming are broken into lines as the whole will be", () => {
  const whole = JSON.stringify({ a: 'x "y" {', b: [1, { c: {} }], d: [] });
  assert.equal(growingJson(whole), JSON.stringify(JSON.parse(whole), null, 2));
  for (let at = 0; at <= whole.length; at += 1) {
    const grown = growingJson(whole.slice(0, at));
    assert.ok(grown.replace(/\s/g, "").length >= whole.slice(0, at).replace(/\s/g, "").length);
  }
  assert.equal(prettyJson('{"a":1}'), '{\n  "a": 1\n}');
  assert.equal(prettyJson("42"), null);
  assert.equal(prettyJson('{"a":'), null);
});

test("addresses are found, and only those of the web", () => {
  assert.deepEqual(pieces("see https://a.example/b?c=1. And javascript:alert(1)"), [
    "see ",
    { href: "https://a.example/b?c=1" },
    ". And javascript:alert(1)",
  ]);
  assert.deepEqual(pieces("(http://a.example/x)"), ["(", { href: "http://a.example/x" }, ")"]);
});

test("a list of plain objects is a table, with all their fields", () => {
  assert.deepEqual(tableOf([{ a: 1 }, { a: 2, b: ["x", "y"] }])?.columns, ["a", "b"]);
  assert.equal(tableOf([{ a: { b: 1 } }]), null);
  assert.equal(tableOf([1, 2]), null);
  assert.ok(!isShortList(["x".repeat(41)]));
});

test("a workflow is known by its looks, with edges drawn or written after the name", () => {
  const actions = [{ name: "Ask?", type: "condition" }, { name: "Mail: all", type: "send", after: "Ask?:yes" }];
  assert.deepEqual(workflowSteps({ actions })?.[1]?.from, [{ source: "Ask?", port: "yes" }]);
  const edges = [{ target: "Ask?" }, { source: "Ask?", target: "Mail: all", port: "no" }];
  assert.deepEqual(workflowSteps({ actions, edges })?.map((step) => step.from), [[], [{ source: "Ask?", port: "no" }]]);
  assert.equal(workflowSteps({ actions: [{ name: "x" }] }), null);
});

test("workflows are compared step by step", () => {
  const actions = [{ name: "Ask?", type: "condition" }, { name: "Mail", type: "send", after: "Ask?:yes", parameters: { to: "m" } }];
  assert.deepEqual(readable({ name: "w", actions, edges: null }), {
    name: "w",
    steps: 'Ask? (condition)\nMail (send) after Ask? → yes {"to":"m"}',
  });
  assert.deepEqual(readable({ title: "x" }), { title: "x" });
});

test("a difference is the lines that went and the lines that came", () => {
  const lines = diffLines("a\nb\nc\nd", "a\nB\nc\nd\ne");
  assert.deepEqual(lines.map(({ kind, text }) => ({ same: " ", added: "+", removed: "-" })[kind] + text), [" a", "-b", "+B", " c", " d", "+e"]);
  assert.deepEqual(diffLines("", "x"), [{ kind: "added", text: "x" }]);
});

test("what a difference says leads from the one text to the other", () => {
  let seed = 7;
  const next = (most: number) => (seed = (seed * 16_807) % 2_147_483_647) % most;
  for (let round = 0; round < 300; round += 1) {
    const text = () => Array.from({ length: next(12) }, () => "abcd"[next(4)]).join("\n");
    const [before, after] = [text(), text()];
    const lines = diffLines(before, after);
    const without = (kind: string) => lines.filter((line) => line.kind !== kind).map((line) => line.text).join("\n");
    assert.equal(without("added"), before);
    assert.equal(without("removed"), after);
  }
});

const LINES = 10_000;
const numbered = (letter: string) => Array.from({ length: LINES }, (_, n) => `${letter}${n}`);

for (const [name, before, after] of [
  ["two texts without a common line", numbered("a"), numbered("b")],
  ["lines in the opposite order", numbered("a"), numbered("a").reverse()],
  ["lines that repeat", numbered("a").map((_, n) => "ab"[n % 2]), numbered("a").map((_, n) => "aab"[n % 3])],
] as const) {
  test(`long texts that differ too much are all removed and all added: ${name}`, { timeout: 5_000 }, () => {
    const lines = diffLines(before.join("\n"), after.join("\n"));
    assert.deepEqual(lines.map((line) => line.text), [...before, ...after]);
    assert.deepEqual(lines.map((line) => line.kind), [...before.map(() => "removed"), ...after.map(() => "added")]);
  });
}

test("in a long text a few changes are found", () => {
  const after = numbered("a").map((line, n) => (n % 100 ? line : `${line}!`));
  assert.equal(diffLines(numbered("a").join("\n"), after.join("\n")).filter((line) => line.kind === "added").length, LINES / 100);
});

test("long stretches without a change are folded", () => {
  const before = Array.from({ length: 40 }, (_, n) => `line ${n}`).join("\n");
  const shown = folded(diffLines(before, before.replace("line 20", "LINE 20")));
  assert.equal(shown.filter((line) => line === null).length, 2);
  assert.equal(shown.filter((line) => line?.kind === "same").length, 6);
});

test("fields are compared by what they hold, not by the order of their keys", () => {
  const changes = changesOf({ a: { x: 1, y: 2 }, gone: 1 }, { a: { y: 2, x: 1 }, b: 3 });
  assert.deepEqual(changes.map(({ field, kind }) => [field, kind]), [["a", "same"], ["b", "added"], ["gone", "removed"]]);
  assert.equal(canonical({ b: 1, a: [{ d: 1, c: 2 }] }), '{"a":[{"c":2,"d":1}],"b":1}');
});

function preview(id: string, approval: string, data: Record<string, unknown>): PayloadAdded {
  const plain = { type: "payload_added", payload_type: "article", summary: "", message_id: "m", source: "preview" } as const;
  return { ...plain, payload_id: id, approval, data };
}

test("a preview is compared with what its tool says was there, else with what this chat saved, else with what was refused", () => {
  const saved = preview("p1", "committed", { object: { title: "a" }, object_id: "x" });
  const refused = preview("p2", "rejected", { object: { title: "b" }, object_id: "x" });
  const other = preview("p3", "committed", { object: { title: "z" }, object_id: "y" });
  const now = preview("p4", "pending", { object: { title: "c" }, object_id: "x" });
  assert.deepEqual(beforeOf(now, [saved, refused, other, now])?.object, { title: "a" });
  assert.deepEqual(beforeOf(now, [refused, other, now])?.object, { title: "b" });
  assert.equal(beforeOf(now, [other, now]), null);
  const told = { ...now, data: { ...now.data, before: { title: "told" } } };
  assert.deepEqual(beforeOf(told, [saved, told])?.object, { title: "told" });
});

test("an accepted preview is applied only when its tool has said so", () => {
  assert.equal(approvalWords("accepted", true).text, "applying…");
  assert.equal(approvalWords("accepted", false).text, "accepted");
  assert.equal(approvalWords("committed", false).text, "applied");
  assert.equal(approvalWords("commit_failed", false).tone, "bad");
});

test("plans and changes of files have views of their own, and other data has not", () => {
  assert.deepEqual(planEntries("plan", { entries: [{ content: "a", status: "odd" }] }), [{ content: "a", status: "pending", priority: "" }]);
  assert.equal(planEntries("plan", { entries: [{ status: "pending" }] }), null);
  assert.equal(planEntries("other", { entries: [{ content: "a" }] }), null);
  assert.deepEqual(fileChange("diff", { path: "a.py", before: null, after: "x" }), { path: "a.py", before: "", after: "x" });
  assert.equal(fileChange("diff", { path: "a.py", before: 3, after: "x" }), null);
  assert.equal(fileChange("diff", { before: "x" }), null);
});
