/**
 * Tests how long an answer waits for diagrams, the order in which diagrams are drawn, and the remembered sizes of
 * pictures.
 */

import assert from "node:assert/strict";
import { test } from "node:test";

import type { Store } from "../src/state/safe_store.ts";
import { FIRST_TRY, MAX_WAITING, NotNow, Queue, SECOND_TRY, TooLate, type Limits } from "../src/thread/markdown/queue.ts";
import { Sizes } from "../src/thread/markdown/sizes.ts";
import { Wait, WAIT_MS } from "../src/thread/markdown/waiting.ts";

class FakeStore implements Store {
  readonly map = new Map<string, string>();
  readonly length = 0;
  key = () => null;
  getItem = (key: string) => this.map.get(key) ?? null;
  removeItem = (key: string) => void this.map.delete(key);
  setItem = (key: string, value: string) => void this.map.set(key, value);
}

const SIZE = { width: 300, height: 100.5 };

test("a size is remembered over reloads, by its source, beside those of other tabs", () => {
  const store = new FakeStore();
  const sizes = new Sizes(store, "k");
  assert.equal(sizes.of("pie"), null);
  const other = new Sizes(store, "k");
  other.add("other", { width: 1, height: 2 });
  sizes.add("pie", SIZE);
  assert.deepEqual([sizes.of("pie"), sizes.of("other"), sizes.of("pie2")], [SIZE, { width: 1, height: 2 }, null]);
  assert.deepEqual(new Sizes(store, "k").of("pie"), SIZE);
  sizes.add("pie", { width: 9, height: 9 });
  assert.deepEqual(new Sizes(store, "k").of("pie"), { width: 9, height: 9 });
});

test("the newest 200 sizes are kept, in at most 8 kB", () => {
  const store = new FakeStore();
  const sizes = new Sizes(store, "k");
  for (let at = 0; at < 250; at += 1) sizes.add(`source ${at}`, SIZE);
  const kept = Array.from({ length: 250 }, (_, at) => new Sizes(store, "k").of(`source ${at}`) !== null);
  assert.deepEqual([kept.indexOf(true), kept.lastIndexOf(false)], [50, 49]);
  assert.ok((store.getItem("k") ?? "").length <= 8_192);
});

test("what is stored in another form is skipped", () => {
  const store = new FakeStore();
  for (const text of ["{", "null", '{"a": 1}', '[["x", 1], [1, 2, 3], ["y", -1, 2], ["z", "1", 1], null]']) {
    store.setItem("k", text);
    const sizes = new Sizes(store, "k");
    assert.equal(sizes.of("pie"), null);
    sizes.add("pie", SIZE);
    assert.deepEqual(new Sizes(store, "k").of("pie"), SIZE);
  }
});

const PIE = "```mermaid\npie\n```\n";

interface Drawn {
  readonly source: string;
  readonly done: () => void;
}

function waitOf(wasGrowing: boolean, known: readonly string[] = []) {
  const drawn: Drawn[] = [];
  let overs = 0;
  const draw = (source: string) => new Promise<void>((done) => drawn.push({ source, done }));
  const wait = new Wait(wasGrowing, draw, (source) => known.includes(source), () => (overs += 1));
  return { wait, drawn, overs: () => overs };
}

const settled = () => new Promise((done) => setImmediate(done));

test("what follows a diagram waits until it is drawn, then for the next diagram", async () => {
  const { wait, drawn, overs } = waitOf(true);
  wait.take(["Words"], true);
  wait.take(["Words", "```mermaid\npi"], true);
  assert.deepEqual([wait.awaited, drawn.length], [Infinity, 0]);
  wait.take(["Words", PIE], true);
  assert.equal(wait.awaited, 1);
  wait.take(["Words", PIE, "After", PIE.replace("pie", "gantt"), "The end"], false);
  assert.deepEqual([wait.awaited, drawn.map((each) => each.source), overs()], [1, ["pie"], 0]);
  drawn[0]?.done();
  await settled();
  assert.deepEqual([wait.awaited, overs()], [Infinity, 1]);
});

test("a text that has ended before its diagram is drawn does not wait for those after it", async () => {
  const { wait, drawn } = waitOf(true);
  wait.take([PIE, "After"], true);
  drawn[0]?.done();
  await settled();
  wait.take([PIE, "After", PIE.replace("pie", "gantt"), "The end"], true);
  assert.deepEqual([wait.awaited, drawn.length], [2, 2]);
});

test("nothing waits in a text that was there, for code of another language, or for a picture whose size is known", () => {
  const old = waitOf(false);
  old.wait.take([PIE, "After"], false);
  const other = waitOf(true, ["pie"]);
  other.wait.take([PIE, "```js\n1\n```\n", "After"], true);
  assert.deepEqual([old.wait.awaited, old.drawn.length, other.wait.awaited, other.drawn.length], [Infinity, 0, Infinity, 0]);
});

test("an answer waits at most 5 s, for all of its diagrams together", async (context) => {
  context.mock.timers.enable({ apis: ["setTimeout"] });
  let now = 0;
  context.mock.method(performance, "now", () => now);
  const { wait, drawn, overs } = waitOf(true);
  wait.take([PIE, "After"], true);
  now = WAIT_MS - 1;
  context.mock.timers.tick(WAIT_MS - 1);
  assert.deepEqual([wait.awaited, overs()], [0, 0]);
  now = WAIT_MS;
  context.mock.timers.tick(1);
  assert.deepEqual([wait.awaited, overs()], [Infinity, 1]);
  wait.take([PIE, "After", PIE.replace("pie", "gantt"), "The end"], true);
  drawn[0]?.done();
  await settled();
  assert.deepEqual([wait.awaited, drawn.length, overs()], [Infinity, 1, 1]);
});

/**
 * A queue that records its work. The work is silent for 0.1 s; for 6 s if its name begins with "slow", and forever if
 * it begins with "stuck".
 */
function queueOf() {
  const queue = new Queue<string>();
  const log: [string, Limits][] = [];
  let spentMs = 0;
  const add = (name: string) =>
    queue.add(async (limits) => {
      log.push([name, limits]);
      await settled();
      const needs = name.startsWith("stuck") ? Infinity : name.startsWith("slow") ? 2 * FIRST_TRY.silentMs : 100;
      spentMs += Math.min(limits.silentMs, needs);
      if (needs > limits.silentMs) throw new TooLate(name);
      return name;
    });
  return { add, log, spentMs: () => spentMs };
}

test("a good diagram before twenty that hang, and after them, is drawn within a minute", async () => {
  for (const isFirst of [true, false]) {
    const { add, spentMs } = queueOf();
    const good = isFirst ? add("good") : null;
    const hanging = Array.from({ length: 20 }, (_, at) => add(`stuck ${at}`).catch((wrong: Error) => wrong));
    await (good ?? add("good"));
    assert.ok(spentMs() <= 20 * FIRST_TRY.silentMs + 100, `${spentMs()} ms`);
    assert.ok((await Promise.all(hanging)).every((each) => each instanceof TooLate));
  }
});

test("a slow diagram is drawn in a second try, after all first tries; one that fails is not tried again", async () => {
  const { add, log } = queueOf();
  const all = ["good a", "slow", "good b"].map(add);
  assert.deepEqual(await Promise.all(all), ["good a", "slow", "good b"]);
  assert.deepEqual(log, [["good a", FIRST_TRY], ["good b", FIRST_TRY], ["slow", FIRST_TRY], ["slow", SECOND_TRY]]);
  let tries = 0;
  const queue = new Queue<string>();
  const wrong = queue.add(() => Promise.reject(new Error(`wrong ${(tries += 1)}`)));
  await assert.rejects(wrong, /wrong 1/);
  assert.equal(tries, 1);
});

test("of too many the oldest that wait are refused, and may be tried again", async () => {
  const { add } = queueOf();
  const all = Array.from({ length: MAX_WAITING + 3 }, (_, at) => add(`good ${at}`).then(() => true, (wrong: Error) => wrong instanceof NotNow && "refused"));
  const came = await Promise.all(all);
  // The first one is being drawn already.
  assert.deepEqual(came.slice(0, 4), [true, "refused", "refused", true]);
  assert.ok(came.slice(3).every((each) => each === true));
});
