/** A wait lasts for the requested time, even if the wall clock changes or a timer fires early. */

import assert from "node:assert/strict";
import { test, type TestContext } from "node:test";

import { after, now, sleep, TIMER_MAX_MS } from "../src/clock.js";
import { OutboxSender, type Recipient } from "../src/sender.js";
import { MemoryOutbox, type Held } from "../src/outbox.js";
import { Stream } from "../src/stream.js";
import type { Receipt } from "../src/types.js";
import { Wire } from "../src/wire.js";

const real = { setTimeout, now: Date.now };

/** Timers that fire `ms` early, as timers of a coarse clock do. */
function withEarlyTimers(context: TestContext, ms: number): void {
  const early = (act: () => void, delay = 0) => real.setTimeout(act, Math.max(0, delay - ms));
  context.mock.method(globalThis, "setTimeout", early as unknown as typeof setTimeout);
}

/** A wall clock that changes at every read: an hour back, two hours forwards, and back again. */
function withJumpingWallClock(context: TestContext): void {
  let looks = 0;
  const jumps = [-3_600_000, 7_200_000, -86_400_000];
  context.mock.method(Date, "now", () => real.now() + (jumps[looks++ % jumps.length] ?? 0));
}

test("a timer that fires early is armed again, until all of the time has passed", async (context) => {
  withEarlyTimers(context, 7);
  for (const ms of [0, 0.4, 1.5, 10, 20.25]) {
    const begun = now();
    await sleep(ms);
    assert.ok(now() - begun >= ms, `${now() - begun} ms passed of ${ms}`);
  }
});

test("a wait that is longer than a timer can be, or endless, does not end at once", async (context) => {
  const delays: number[] = [];
  const timer = ((act: () => void, delay = 0) => (delays.push(delay), real.setTimeout(act, delay))) as unknown as typeof setTimeout;
  context.mock.method(globalThis, "setTimeout", timer);
  const ended: number[] = [];
  const cancels = [TIMER_MAX_MS + 1, 1e12, Infinity].map((ms) => after(ms, () => ended.push(ms)));
  await new Promise((done) => real.setTimeout(done, 20));
  cancels.forEach((cancel) => cancel());
  assert.deepEqual(ended, []);
  assert.deepEqual(delays, [TIMER_MAX_MS, TIMER_MAX_MS, TIMER_MAX_MS]);
});

test("a wait that was cancelled or aborted is over, and what it would have done is not done", async () => {
  const ended: string[] = [];
  after(5, () => ended.push("cancelled"))();
  const control = new AbortController();
  const waits = sleep(60_000, control.signal).then(() => ended.push("aborted"));
  control.abort();
  await waits;
  await sleep(60_000, control.signal);
  await sleep(20);
  assert.deepEqual(ended, ["aborted"]);
});

/**
 * A server that answers a quota's 429 to the first post of each chat, and accepts posts that arrive `askedMs` later.
 */
class Quota {
  readonly early: string[] = [];
  readonly accepted = new Set<string>();
  private readonly until = new Map<string, number>();

  constructor(private readonly askedMs: number) {}

  readonly fetch = async (input: string | URL | Request): Promise<Response> => {
    const path = String(input);
    const until = this.until.get(path);
    if (until === undefined) {
      this.until.set(path, now() + this.askedMs);
      return Response.json({ detail: "too many turns" }, { status: 429, headers: { "Retry-After": `${this.askedMs / 1000}` } });
    }
    if (now() < until) this.early.push(path);
    this.accepted.add(path);
    return Response.json({ status: "accepted" }, { status: 202 });
  };
}

/** Posts one message from each of 120 chats; resolves when all messages were accepted. */
function postFrom120Chats(quota: Quota): Promise<void> {
  const wire = new Wire({ url: "http://quota.invalid", fetch: quota.fetch as typeof fetch, retryPolicy: { pauseFirstMs: 1, pauseMaxMs: 5 } });
  return new Promise((done, fail) => {
    const stuck = real.setTimeout(() => fail(new Error(`only ${quota.accepted.size} of 120 chats posted again`)), 10_000);
    const recipient: Recipient = {
      accepted: (_: Held, receipt: Receipt) => {
        assert.equal(receipt.status, "accepted");
        if (quota.accepted.size < 120) return;
        clearTimeout(stuck);
        done();
      },
      refused: (_, wrong) => fail(wrong),
      longDone: () => fail(new Error("nothing was a duplicate")),
      withdrawn: () => {},
      delayed: () => {},
    };
    for (let count = 0; count < 120; count++) {
      const chatId = `c${count}`;
      const held = { chatId, requestId: `r${count}`, type: "user_message", body: "{}" };
      new OutboxSender(wire, chatId, new MemoryOutbox(), recipient).put(held);
    }
  });
}

for (const [ms, early] of [[100, 0], [100, 0.9], [100.3, 1.2], [57.9, 20]] as const) {
  test(`120 chats that were asked to wait ${ms} ms all post again, and none too soon, with timers ${early} ms early`, async (context) => {
    if (early) withEarlyTimers(context, early);
    const quota = new Quota(ms);
    await postFrom120Chats(quota);
    assert.deepEqual(quota.early, []);
  });
}

test("120 chats post again while the wall clock jumps back and forth", async (context) => {
  withJumpingWallClock(context);
  const quota = new Quota(80);
  await postFrom120Chats(quota);
  assert.deepEqual(quota.early, []);
});

test("the pauses of a server that drops every connection grow although the wall clock jumps", async (context) => {
  withJumpingWallClock(context);
  context.mock.method(Math, "random", () => 1);
  const dropped = () => Promise.resolve(new Response("", { headers: { "Content-Type": "text/event-stream" } }));
  const pauses = await new Promise<number[]>((done) => {
    const seen: number[] = [];
    const retryPolicy = { pauseFirstMs: 1, pauseMaxMs: 60_000 }; // a connection that lasts this long resets the pauses
    const stream = new Stream(new Wire({ url: "http://drops.invalid", fetch: dropped as typeof fetch, retryPolicy }), (item) => {
      if (item.kind !== "lost" || seen.push(item.retryMs) < 6) return;
      stream.close();
      done(seen);
    });
    stream.add("c");
  });
  assert.deepEqual(pauses, [1, 2, 4, 8, 16, 32]);
});
