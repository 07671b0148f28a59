/** Tests the titles of a durable agent's steps, and below which question the steps are shown. */

import assert from "node:assert/strict";
import { test } from "node:test";

import type { AgentStep, Message } from "threadcast-client";

import { askedIn, nameOf, noteOf, said, signOf, summaryOf } from "../src/tools/step_words.ts";

const NOW = new Date(2026, 4, 1, 12).getTime();

function step(status: string, more: Partial<AgentStep> = {}): AgentStep {
  return { type: "agent_step", run_id: "r1", step_id: "1", kind: "step", name: "plan", status, started_at: NOW, ...more };
}

function words(given: AgentStep, isRunOpen = true): string {
  return said(given, signOf(given, isRunOpen), NOW);
}

test("a step is named with what became of it", () => {
  assert.equal(words(step("running")), "plan, running");
  assert.equal(words(step("done", { elapsed_ms: 1_240 })), "plan, done, 1.2 s");
  assert.equal(words(step("failed", { error: "ValueError", elapsed_ms: 5 })), "plan, ValueError, 5 ms");
  assert.equal(words(step("failed")), "plan, failed");
  assert.equal(words(step("unknown")), "plan, outcome unknown");
  assert.equal(words(step("cancelled")), "plan, cancelled");
  assert.equal(words(step("running"), false), "plan, not finished");
});

test("waiting is said by its kind, and an unknown kind is said like a step", () => {
  assert.equal(words(step("waiting", { kind: "ask", name: "Which one?" })), "Which one?, waits for an answer");
  assert.equal(words(step("waiting", { kind: "chat", name: "reader" })), "reader, waits");
  assert.equal(words(step("waiting", { kind: "chat", name: "reader", subchat_id: "c2" })), "reader, waiting");
  assert.equal(words(step("running", { kind: "vote", name: "" })), "vote, running");
});

test("a sleep names the time at which it ends, with the date if that is not today and the year if it is another", () => {
  const sleep = (until?: number) => step("waiting", { kind: "sleep", name: "", until });
  const eight = new Date(2026, 4, 1, 20).getTime();
  const time = new Date(eight).toLocaleTimeString(undefined, { hour: "2-digit", minute: "2-digit" });
  assert.equal(words(sleep(eight)), `Sleeps until ${time}`);
  assert.match(words(sleep(eight + 86_400_000)), /^Sleeps until .*2.*/);
  assert.notEqual(words(sleep(eight + 86_400_000)), words(sleep(eight)));
  assert.match(words(sleep(eight + 400 * 86_400_000)), /2027/);
  assert.equal(words(sleep()), "Sleeps");
  assert.equal(words(step("done", { kind: "sleep", name: "", elapsed_ms: 60_000 })), "Slept, 1 min");
  assert.equal(nameOf(step("waiting", { kind: "sleep", name: "" }), "stopped", NOW), "Sleep");
  assert.equal(noteOf(sleep(eight), "waiting"), "");
});

test("one line counts the steps, the failed ones and the time of a run that has ended", () => {
  const steps = [step("done", { elapsed_ms: 2_000 }), step("failed", { started_at: NOW + 1_000, elapsed_ms: 11_000 })];
  assert.equal(summaryOf(steps, false), "2 steps · 1 failed · 12 s");
  assert.equal(summaryOf(steps.slice(0, 1), true), "1 step");
  assert.equal(summaryOf([step("running")], false), "1 step");
  assert.equal(summaryOf(Array.from({ length: 100 }, () => step("done")), true), "the newest 100 steps");
});

/** Returns the path and the nodes of a chat; `at` is in seconds. */
function chat(...told: [role: string, at: number | null][]): [string[], Map<string, Message>] {
  const messages = told.map(([role, s], at): Message => ({ role, content: "", message_id: `m${at}`, created_at: s && s * 1_000 }));
  return [messages.map((message) => message.message_id), new Map(messages.map((message) => [message.message_id, message]))];
}

test("the steps stand below the question of their run, also when later ones have waited in the queue", () => {
  const begunAt = (s: number) => [step("done", { started_at: s * 1_000 })];
  const [path, nodes] = chat(["user", 10], ["assistant", 20], ["user", 30], ["assistant", 50], ["user", 35], ["assistant", 70]);
  assert.equal(askedIn(path, nodes, begunAt(15)), "m0");
  assert.equal(askedIn(path, nodes, begunAt(40)), "m2");
  assert.equal(askedIn(path, nodes, begunAt(60)), "m4");
  assert.equal(askedIn(path, nodes, begunAt(5)), null);
  assert.equal(askedIn(path, nodes, begunAt(9.5)), "m0", "the clocks of two machines differ");
  assert.equal(askedIn(...chat(["user", null]), begunAt(5)), null);
});
