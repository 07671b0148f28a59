/** Tests a storage that the browser refuses, a full storage, and a storage that two people use one after the other. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { SafeStore, type Store } from "../src/state/safe_store.ts";

class FakeStorage implements Store {
  readonly map = new Map<string, string>();
  isFull = false;
  get length(): number {
    return this.map.size;
  }
  key = (at: number) => [...this.map.keys()][at] ?? null;
  getItem = (key: string) => this.map.get(key) ?? null;
  removeItem = (key: string) => void this.map.delete(key);
  setItem(key: string, value: string): void {
    if (this.isFull) throw new Error("QuotaExceededError");
    this.map.set(key, value);
  }
}

test("what a blocked storage does not keep is held in memory, and that is told", () => {
  let refusals = 0;
  const blocked = () => {
    throw new Error("SecurityError");
  };
  const store = new SafeStore(blocked, "", () => refusals++);
  assert.deepEqual([store.getItem("a"), store.length, refusals], [null, 0, 0]);
  store.removeItem("a");
  store.setItem("a", "1");
  assert.deepEqual([store.getItem("a"), store.length, store.key(0), refusals], ["1", 1, "a", 1]);
  store.removeItem("a");
  assert.equal(store.getItem("a"), null);
});

test("in a full storage the newest value holds, and is kept once there is room again", () => {
  const storage = new FakeStorage();
  const store = new SafeStore(() => storage);
  store.setItem("a", "old");
  storage.isFull = true;
  store.setItem("a", "new");
  assert.deepEqual([store.getItem("a"), store.length, storage.getItem("a")], ["new", 1, "old"]);
  storage.isFull = false;
  store.setItem("a", "newer");
  assert.equal(storage.getItem("a"), "newer");
});

test("a person sees the keys of nobody else, and the end of one takes theirs alone", () => {
  const storage = new FakeStorage();
  storage.setItem("theme", "dark");
  const [ann, annB] = ["ann/", "ann.b/"].map((prefix) => new SafeStore(() => storage, prefix)) as [SafeStore, SafeStore];
  ann.setItem("draft", "of ann");
  annB.setItem("draft", "of ann.b");
  assert.deepEqual([ann.getItem("draft"), ann.length, ann.key(0), ann.getItem("theme")], ["of ann", 1, "draft", null]);
  assert.equal(ann.isNameOf("draft", "ann/draft"), true);
  ann.end();
  ann.setItem("draft", "too late");
  assert.deepEqual([...storage.map], [["theme", "dark"], ["ann.b/draft", "of ann.b"]]);
});
