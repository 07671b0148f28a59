/** Folding a recorded log from any position at which a reader may join gives the same state as Python's reducer. */

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { isDeepStrictEqual } from "node:util";

import { reduce } from "../src/reducer.js";
import { snapshotOf, stateFromSnapshot } from "../src/state.js";
import type { Snapshot, WireEvent } from "../src/types.js";

interface Stream {
  chat_id: string;
  items: { position: number; event?: WireEvent; snapshot: Snapshot }[];
}

const streams = JSON.parse(readFileSync(process.env.STREAMS as string, "utf8")) as Stream[];

/** The number of positions of one log at which a test reader joins, evenly spread: long logs repeat similar events. */
const JOINS_MAX = 20;

/** Removes null and empty values, which equal absent values, because the wire leaves defaults out. */
function plain(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(plain);
  if (value === null || typeof value !== "object") return value;
  const kept = Object.entries(value).map(([key, inner]) => [key, plain(inner)] as const);
  return Object.fromEntries(kept.filter(([, inner]) => !isEmpty(inner)).sort(([a], [b]) => (a < b ? -1 : 1)));
}

function isEmpty(value: unknown): boolean {
  if (value === null || typeof value !== "object") return value == null || value === false || value === "";
  return Object.keys(value).length === 0;
}

test("there are streams to fold", () => assert.ok(streams.length > 50));

for (const { chat_id, items } of streams) {
  test(`state + events = state: ${chat_id}`, () => {
    const wanted = items.map(({ snapshot }) => plain(snapshot));
    for (const first of items.filter((_, at) => at % Math.ceil(items.length / JOINS_MAX) === 0)) {
      let state = stateFromSnapshot(chat_id, first.snapshot, first.position);
      for (const { position, event, snapshot } of items.slice(first.position + 1)) {
        if (event) state = reduce(state, { ...event, chat_id, seq: String(position - first.position) });
        else state = stateFromSnapshot(chat_id, snapshot, position);
        assert.equal(state.position, position);
        if (!isDeepStrictEqual(plain(snapshotOf(state)), wanted[position])) {
          assert.deepEqual(plain(snapshotOf(state)), wanted[position], `from ${first.position} to ${position}`);
        }
      }
    }
  });
}
