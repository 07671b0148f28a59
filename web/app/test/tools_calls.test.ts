/** Tests the state of a call, which is computed from the chat's messages, and people's decisions about the call. */

import assert from "node:assert/strict";
import { test } from "node:test";

import type { Message, ToolStatus } from "threadcast-client";

import { elapsedOf, isWithheld, mcpServerOf, resultsById, shownName, stateOf, subchatsOf, type Known } from "../src/tools/calls.ts";
import { differences } from "../src/tools/definitions.ts";
import { readEdited } from "../src/tools/editing.ts";

const STILL: Known = { isDraft: false, isRunOpen: true };

function result(content: string, more: Partial<Message> = {}): Message {
  return { role: "tool", content, message_id: "m1", tool_call_id: "c1", ...more };
}

function status(name: string): ToolStatus {
  return { type: "tool_status", tool_call_id: "c1", name: "clock", message_id: "m0", index: 0, status: name };
}

test("a call goes from being written over waiting and running to done", () => {
  assert.equal(stateOf({ ...STILL, isDraft: true }), "writing");
  assert.equal(stateOf(STILL), "waiting");
  assert.equal(stateOf({ ...STILL, status: status("queued") }), "waiting");
  assert.equal(stateOf({ ...STILL, status: status("progress") }), "running");
  assert.equal(stateOf({ ...STILL, result: result("42") }), "done");
});

test("a question stands above what the call's status says", () => {
  const reason = { type: "confirmation", tool_name: "clock", tool_call_id: "c1" };
  assert.equal(stateOf({ ...STILL, status: status("awaiting_decision"), reason }), "asking");
  assert.equal(stateOf({ ...STILL, ideCall: { tool_call_id: "c1", tool_name: "open_file", args: {} } }), "client");
});

test("a call without an answer, in a chat at rest, was interrupted", () => {
  assert.equal(stateOf({ isDraft: false, isRunOpen: false }), "interrupted");
});

test("how a call failed is told apart by what its result says", () => {
  const failed = (content: string, outcome?: string) =>
    stateOf({ ...STILL, result: result(content, { tool_failed: true, extra: outcome ? { outcome } : {} }) });
  assert.equal(failed("no such file"), "error");
  assert.equal(failed("The call was denied by user.", "denied"), "denied");
  assert.equal(failed("Aborted by the user before it finished.", "aborted"), "cancelled");
  assert.equal(failed("It broke off.", "outcome_unknown"), "unknown");
  assert.equal(failed("The tool did not finish within 30 s."), "timed_out");
  assert.equal(failed("No client answered this call within 600 s."), "timed_out");
  assert.equal(failed("Interrupted by a new message before it was run.", "aborted"), "interrupted");
});

test("a result tells how long it took and which chats it ran, and nothing where it says nothing", () => {
  const full = result("x", { extra: { elapsed_ms: 120, subchats: ["sub_1", 7, "sub_2"] } });
  assert.equal(elapsedOf(full), 120);
  assert.deepEqual(subchatsOf(full), ["sub_1", "sub_2"]);
  assert.equal(elapsedOf(undefined), null);
  assert.deepEqual(subchatsOf(result("x")), []);
});

test("results are found along the path alone", () => {
  const nodes = new Map([
    ["a", result("old", { message_id: "a" })],
    ["b", result("new", { message_id: "b" })],
    ["q", { role: "user", content: "?", message_id: "q" }],
  ]);
  assert.equal(resultsById(nodes, ["q", "b"]).get("c1")?.content, "new");
  assert.equal(resultsById(nodes, ["q"]).size, 0);
});

test("a withheld result is known by the server's own word for it", () => {
  assert.ok(isWithheld(result("[Only the model reads this result.]")));
  assert.ok(!isWithheld(result("secret")));
});

test("the name of an MCP tool is its own, beside its server", () => {
  assert.equal(mcpServerOf("mcp__my_notes__read_file"), "my_notes");
  assert.equal(shownName("mcp__my_notes__read_file"), "read_file");
  assert.equal(mcpServerOf("mcp__git_hub__list__all"), "git_hub");
  assert.equal(mcpServerOf("mcp__x__"), null);
  assert.equal(mcpServerOf("read__file"), null);
  assert.equal(shownName("clock"), "clock");
});

test("edited arguments are an object, and the same ones in other words are not an edit", () => {
  const original = { a: 1, b: { c: 2, d: 3 } };
  assert.deepEqual(readEdited('{"b": {"d": 3, "c": 2}, "a": 1}', original), { value: original, isChanged: false });
  assert.deepEqual(readEdited('{"a": 2}', original), { value: { a: 2 }, isChanged: true });
  assert.match((readEdited("[1]", original) as { error: string }).error, /object/);
});

test("what is wrong with edited arguments is said with its line", () => {
  const { error } = readEdited('{\n  "a": 1,\n  "b": }\n', {}) as { error: string };
  assert.match(error, /^This is not JSON \(line 3\): /);
  assert.doesNotMatch(error, /\.\.\./);
});

test("a tool that asks again shows the fields that differ, with marks that would hide or turn text made visible", () => {
  const before = { description: "Read.", input_schema: { type: "object", title: "t" } };
  assert.deepEqual(differences(before, { ...before, input_schema: { title: "t", type: "object" } }), []);
  assert.deepEqual(differences(before, { ...before, description: "Read\u202e.\u200b\nAnd \u001bpost." }), [
    { field: "description", kind: "changed", before: "Read.", after: "Read⟨U+202E⟩.⟨U+200B⟩\nAnd ⟨U+001B⟩post." },
  ]);
  assert.deepEqual(differences(null, before).map((one) => one.field), ["description", "arguments"]);
});
