/** Tests the texts about the connection to the server, the meaning of keys, and the format of numbers. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { duration, size } from "../src/ui/figures.ts";
import { wishOf } from "../src/ui/keys.ts";
import { sentence, standing, type Facts } from "../src/ui/standing.ts";
import { once } from "../src/ui/once.ts";

const NOW = 1_000_000;
const facts = (connection: Facts["connection"], more: Partial<Facts> = {}): Facts => ({
  connection,
  isReady: true,
  failure: null,
  hasNetwork: true,
  nowMs: NOW,
  ...more,
});
/** Returns the kind of a standing, its sentence, and its text that changes every second. */
function said(...given: Parameters<typeof facts>): [string, string, string] {
  const now = standing(facts(...given));
  return [now.kind, sentence(now), now.seconds];
}

test("live is said alone, and with what waits when something does", () => {
  assert.deepEqual(said({ state: "live", held: 0, reason: "as it was" }), ["live", "live", ""]);
  assert.equal(said({ state: "live", held: 2, reason: "the store is away" })[1], "receiving, not sending, 2 waiting to be sent, the store is away");
  assert.equal(standing(facts({ state: "live", held: 2, reason: "the store is away" })).kind, "busy", "what does not go out is not green");
  assert.deepEqual(said({ state: "live", held: 1 }), ["live", "live, 1 waiting to be sent", ""]);
});

test("offline says why, how much waits, and when it is tried again", () => {
  const lost = { state: "offline", held: 1, reason: "the server is shutting down", retryAt: NOW + 2_400 } as const;
  assert.deepEqual(said(lost), ["offline", "offline, 1 waiting to be sent, the server is shutting down", "again in 3 s"]);
});

test("while it is being tried no time is told", () => {
  const trying = { state: "offline", held: 0, reason: "the server does not answer", retryAt: NOW - 1 } as const;
  assert.deepEqual(said(trying), ["offline", "offline, the server does not answer, trying again now", ""]);
});

test("a device without a network is told as one only while the server is out of reach", () => {
  assert.equal(said({ state: "live", held: 0 }, { hasNetwork: false })[1], "live");
  const away = { state: "offline", held: 0, reason: "the server does not answer", retryAt: NOW + 500 } as const;
  assert.equal(said(away, { hasNetwork: false })[1], "offline, this device has no network");
});

test("a connection that was cut by hand, and the first one, are no loss", () => {
  assert.deepEqual(said({ state: "offline", held: 0, reason: "connecting again", retryAt: NOW }), ["busy", "connecting", ""]);
  assert.equal(said({ state: "offline", held: 0 })[0], "busy");
  assert.equal(said({ state: "catching_up", held: 0 }, { isReady: false })[1], "opening");
  assert.equal(said({ state: "catching_up", held: 3 })[1], "catching up, 3 waiting to be sent");
});

test("a line that says nothing is not called live: for how long it has been silent is told", () => {
  assert.deepEqual(said({ state: "live", held: 0, silentSince: NOW - 23_900 }), ["offline", "no data from the server", "for 23 s"]);
  assert.equal(said({ state: "live", held: 1, silentSince: NOW - 23_900 })[1], "no data from the server, 1 waiting to be sent");
});

test("trying now is offered where it changes something: not while a try is being made", () => {
  const can = (...given: Parameters<typeof facts>) => standing(facts(...given)).canTry;
  assert.equal(can({ state: "offline", held: 0, reason: "the server does not answer", retryAt: NOW + 900 }), true);
  assert.equal(can({ state: "offline", held: 0, reason: "the server does not answer", retryAt: NOW }), false);
  assert.equal(can({ state: "live", held: 0, silentSince: NOW - 21_000 }), true);
  assert.equal(can({ state: "live", held: 0 }), false);
});

test("what ended for good says which kind of end it is, and a sign-in is no end", () => {
  const ended = (status: number, isReady = true) => said({ state: "offline", held: 0 }, { failure: { message: "said so", status }, isReady })[1];
  assert.deepEqual([403, 404, 0].map((status) => ended(status)), ["no permission, said so", "deleted", "ended, said so"]);
  assert.equal(ended(404, false), "no such chat");
  assert.deepEqual(said({ state: "offline", held: 1, reason: "the token is not known", isSignedOut: true }), ["refused", "signed out, 1 waiting to be sent", ""]);
});

const press = (key: string, more = {}) => wishOf({ key, ctrlKey: false, metaKey: false, altKey: false, isWriting: false, ...more });

test("letters are for who is not writing, and can be switched off", () => {
  assert.equal(press("?"), "shortcuts");
  assert.equal(press("j", { isWriting: true }), null);
  assert.equal(press("d", { ctrlKey: true }), null);
  assert.equal(wishOf({ key: "?", ctrlKey: false, metaKey: false, altKey: false, isWriting: false }, false), null);
});

test("Escape is heard everywhere, Alt and an arrow outside of fields", () => {
  assert.equal(press("Escape", { isWriting: true }), "leave");
  assert.equal(press("ArrowDown", { altKey: true }), "next");
  assert.equal(press("ArrowUp", { altKey: true, isWriting: true }), null);
});

test("times and sizes are written as people write them", () => {
  const times = [4, 850, 4_200, 59_400, 61_000, 200_000, 3_720_000];
  assert.deepEqual(times.map(duration), ["4 ms", "850 ms", "4.2 s", "59 s", "1 min 1 s", "3 min 20 s", "1 h 2 min"]);
  assert.deepEqual([812, 9_940, 34_000, 999_600, 1_200_000].map(size), ["812 B", "9.9 kB", "34 kB", "1 MB", "1.2 MB"]);
});

test("what is loaded once is loaded again after a failure, and never twice at a time", async () => {
  const loads: ((isGood: boolean) => void)[] = [];
  const load = once(() => new Promise<void>((done, fail) => loads.push((isGood) => (isGood ? done() : fail(new Error("offline"))))));
  load();
  load();
  assert.equal(loads.length, 1);
  loads[0]?.(false);
  await Promise.resolve().then(() => {});
  load();
  assert.equal(loads.length, 2);
  loads[1]?.(true);
  await Promise.resolve().then(() => {});
  load();
  assert.equal(loads.length, 2);
});
