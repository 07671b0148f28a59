/** Tests the pure parts of the developer's drawer and of time travel. */

import assert from "node:assert/strict";
import { test } from "node:test";

import type { ChatState, RunTrace } from "threadcast-client";

import { counted, NONE } from "../src/drawer/counts.ts";
import { bytesOf, isWanted, summary, typesOf } from "../src/drawer/lines.ts";
import { added, NOTHING, type Line, type Log } from "../src/drawer/log.ts";
import { momentOf, nextStop, speedsFor } from "../src/drawer/play.ts";
import { lasted, spent, totals } from "../src/drawer/traces.ts";

const line = (type: string, more: Partial<Line> = {}): Omit<Line, "number"> => ({
  at: 0,
  kind: "event",
  type,
  position: 1,
  text: "",
  body: { type },
  ...more,
});
const filled = (count: number, type = "stream_delta"): Log => Array.from({ length: count }).reduce<Log>((log) => added(log, line(type)), NOTHING);

test("the log is bounded, and tells how many there were", () => {
  const log = filled(5_000);
  const lines = log.blocks.flat();
  assert.equal(log.count, 5_000);
  assert.ok(lines.length <= 2_000 && lines.length > 1_800, String(lines.length));
  assert.equal(lines.at(-1)?.number, 4_999);
});

test("a line leaves the blocks before it as they are, so that they need not be drawn again", () => {
  const before = filled(250);
  const after = added(before, line("ack"));
  assert.deepEqual(before.blocks.map((block, at) => block === after.blocks[at]), [true, true, false]);
  assert.equal(before.blocks.flat().length, 250);
});

test("of many snapshots the newest are kept whole", () => {
  const log = Array.from({ length: 6 }).reduce<Log>((all) => added(added(all, line("snapshot")), line("ack")), NOTHING);
  const kept = log.blocks.flat().filter((each) => each.type === "snapshot").map((each) => each.body !== null);
  assert.deepEqual(kept, [false, false, false, true, true, true]);
});

test("a filter leaves what is said of the connection", () => {
  const [delta, ack, note] = [line("stream_delta"), line("ack"), line("note", { kind: "note" })].map((each) => ({ ...each, number: 0 }) as Line);
  const wanted = (filter: string) => [delta!, ack!, note!].map((each) => isWanted(each, filter));
  assert.deepEqual(wanted("all"), [true, true, true]);
  assert.deepEqual(wanted("no_deltas"), [false, true, true]);
  assert.deepEqual(wanted("stream_delta"), [true, false, true]);
  assert.deepEqual(typesOf(added(filled(2), line("ack"))), [["stream_delta", 2], ["ack", 1]]);
});

test("sizes are those of the bytes that travel", () => {
  assert.equal(bytesOf({ text: "né" }), JSON.stringify({ text: "né" }).length + 1);
});

test("an event says in one line what it is about", () => {
  assert.equal(summary({ type: "stream_delta", seq: "3", ops: [{ op: "append_content", text: "a\nb" }] }), 'append_content "a\\nb"');
  assert.equal(summary({ type: "ack", chat_id: "c", seq: "1", accepted: true, by: null, result: {} }), "accepted=true");
});

test("a cut is a resume and no resync; a gap is followed by one, and so is a resume that cannot be", () => {
  const opened = (after: number | null) => ({ kind: "opened", after }) as const;
  const lost = { kind: "lost", reason: "", retryMs: 0 } as const;
  const begun = [opened(null), "snapshot", { kind: "live" }, "event"] as const;
  const count = (...more: Parameters<typeof counted>[1][]) => {
    const { connections, resumes, gaps, resyncs } = [...begun, ...more].reduce(counted, NONE);
    return { connections, resumes, gaps, resyncs };
  };
  assert.deepEqual(count(), { connections: 1, resumes: 0, gaps: 0, resyncs: 0 });
  assert.deepEqual(count(lost, opened(4), "event", { kind: "live" }), { connections: 2, resumes: 1, gaps: 0, resyncs: 0 });
  const gap = { kind: "missed", expected: 2, got: 3 } as const;
  assert.deepEqual(count(gap, lost, opened(null), "snapshot", { kind: "live" }), { connections: 2, resumes: 0, gaps: 1, resyncs: 1 });
  assert.deepEqual(count(lost, opened(4), "snapshot", { kind: "live" }), { connections: 2, resumes: 1, gaps: 0, resyncs: 1 });
  assert.equal(count("snapshot").resyncs, 0, "another branch was chosen");
});

test("a play ends at the end, and a long chat is played in larger steps", () => {
  assert.deepEqual([nextStop(0, 10, 4), nextStop(8, 10, 4), nextStop(10, 10, 4)], [4, 10, null]);
  assert.deepEqual(speedsFor(100), [1, 4, 16]);
  assert.equal(speedsFor(60_000)[0], 100);
});

test("the moment of a state is that of its newest message", () => {
  const state = (times: (number | null)[]) =>
    ({ path: times.map((_, at) => `m${at}`), nodes: new Map(times.map((created_at, at) => [`m${at}`, { created_at }])) }) as unknown as ChatState;
  assert.equal(momentOf(state([5, 9, null])), 9);
  assert.equal(momentOf(state([])), null);
});

test("what a run cost is summed over its rounds", () => {
  const usage = { prompt_tokens: 10, completion_tokens: 2, total_tokens: 12, cache_read_input_tokens: 8, cost_usd: 0.001 };
  assert.equal(spent(usage), "10 + 2 tokens (8 from the cache), $0.0010");
  const trace = { rounds: [{ usage }, { usage: null }, { usage }], summaries: [] } as unknown as RunTrace;
  assert.equal(totals(trace), "20 + 4 tokens (16 from the cache), $0.0020");
  assert.equal(lasted(1_000, 2_400), "in 1.4 s");
});
