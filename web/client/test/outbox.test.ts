/** The outbox holds each command once, from `add` to `remove`, also over a reload. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { OutboxFull } from "../src/errors.js";
import { MemoryOutbox, StorageOutbox, type Held, type Store } from "../src/outbox.js";

function held(requestId: string, type = "user_message", chatId = "c"): Held {
  return { chatId, requestId, type, body: `{"client_request_id":"${requestId}"}` };
}

class MemoryStore implements Store {
  readonly kept = new Map<string, string>();
  getItem = (key: string): string | null => this.kept.get(key) ?? null;
  setItem = (key: string, value: string): void => void this.kept.set(key, value);
  removeItem = (key: string): void => void this.kept.delete(key);
  key = (at: number): string | null => [...this.kept.keys()][at] ?? null;
  get length(): number {
    return this.kept.size;
  }
}

/** Web Locks as in a browser; the locks of a closed tab are released. */
function withLocks(): { close(name: string): void } {
  const names = new Set<string>();
  const locks = {
    request: (name: string, hold: () => Promise<unknown>) => (names.add(name), hold()),
    query: () => Promise.resolve({ held: [...names].map((name) => ({ name })) }),
  };
  Object.defineProperty(globalThis, "navigator", { value: { locks }, configurable: true });
  return { close: (name) => void names.delete(name) };
}

test("in order, and each once", () => {
  const outbox = new MemoryOutbox();
  for (const id of ["a", "b", "a", "c"]) outbox.add(held(id));
  outbox.remove("c", "b");
  outbox.remove("other", "a");
  assert.deepEqual(outbox.held("c").map((each) => each.requestId), ["a", "c"]);
  assert.deepEqual(outbox.chats(), ["c"]);
});

test("as many as the server's queue takes, and what overtakes the queue beside them", () => {
  const outbox = new MemoryOutbox();
  for (let count = 0; count < 100; count++) outbox.add(held(`m${count}`));
  assert.throws(() => outbox.add(held("one more")), OutboxFull);
  outbox.add(held("stop", "abort"));
  assert.equal(outbox.held("c").length, 101);
});

test("what a closed tab left is taken over by the next, once, and only when it is closed", async () => {
  const locks = withLocks();
  const store = new MemoryStore();
  const first = new StorageOutbox(store);
  first.add(held("a"));
  first.add(held("b"));
  first.add(held("claim", "ide_tool_claim"));
  first.remove("c", "b");

  const second = new StorageOutbox(store);
  await second.adopt();
  assert.deepEqual(second.held("c"), [], "the first tab is there and posts it itself");

  const [key] = store.kept.keys();
  locks.close((key as string).slice(0, (key as string).lastIndexOf(".")));
  await second.adopt();
  assert.deepEqual(second.held("c").map((each) => each.requestId), ["a"]);
  const third = new StorageOutbox(store);
  await third.adopt();
  assert.deepEqual(third.held("c"), []);
  second.remove("c", "a");
  assert.equal(store.length, 0);
});

test("a full store keeps the command for as long as the tab lives", () => {
  withLocks();
  const store = new MemoryStore();
  store.setItem = () => {
    throw new Error("QuotaExceededError");
  };
  const outbox = new StorageOutbox(store);
  outbox.add(held("a"));
  assert.equal(outbox.held("c").length, 1);
});
