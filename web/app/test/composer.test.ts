/** Drafts that are not lost, files that may be attached, and what waits, in words. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { isImage, partOf, refusalOf } from "../src/composer/files.ts";
import { heldText, isEditable, wordsOf } from "../src/composer/waiting.ts";
import { Drafts, DRAFTS_MAX_COUNT, EMPTY, homeOf, type DraftFile } from "../src/state/drafts.ts";
import { SafeStore, type Store } from "../src/state/safe_store.ts";

class MapStore implements Store {
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

const file: DraftFile = { name: "a.png", mime: "image/png", bytes: 3, url: "/v1/chats/c-1/blobs/ab", hash: "ab" };

test("a draft survives the page, and goes over to the chat that begins with it", () => {
  const store = new MapStore();
  new Drafts(store).write(null, { text: "hello", files: [file] });
  const drafts = new Drafts(store);
  assert.deepEqual(drafts.read(null), { text: "hello", files: [file] });
  assert.equal(homeOf(drafts.read(null)), "c-1");
  drafts.move(null, "c-1");
  assert.deepEqual([drafts.read(null), drafts.read("c-1").text], [EMPTY, "hello"]);
  drafts.write("c-1", EMPTY);
  assert.equal(store.length, 0);
});

test("a full or spoilt store loses no draft while the page stands", () => {
  const store = new MapStore();
  store.setItem("threadcast.draft.x", "{");
  const drafts = new Drafts(new SafeStore(() => store));
  assert.deepEqual(drafts.read("x"), EMPTY);
  store.isFull = true;
  drafts.write("x", { text: "kept", files: [] });
  assert.equal(drafts.read("x").text, "kept");
});

test("of too many drafts the oldest go", () => {
  const store = new MapStore();
  let now = 0;
  const drafts = new Drafts(store, () => ++now);
  for (let number = 0; number <= DRAFTS_MAX_COUNT; number++) drafts.write(`c${number}`, { text: "t", files: [] });
  assert.equal(store.length, DRAFTS_MAX_COUNT);
  assert.deepEqual(new Drafts(store).read("c0"), EMPTY);
  assert.equal(new Drafts(store).read("c1").text, "t");
});

test("what cannot be attached says why, by the server's own limits", () => {
  const limits = { images_max_count: 2, binary_max_bytes: 1_000, blob_max_bytes: 2_000, parts_max_count: 4 };
  const png = { name: "a.png", type: "image/png", size: 900 };
  assert.equal(refusalOf(png, [file], limits), null);
  assert.match(refusalOf({ ...png, size: 1_001 }, [], limits) ?? "", /a.png has 1 kB; at most 1 kB/);
  assert.match(refusalOf(png, [file, file], limits) ?? "", /At most 2 images/);
  assert.match(refusalOf({ ...png, type: "text/csv", size: 1_500 }, [file, file, file], limits) ?? "", /At most 3 files/);
  assert.match(refusalOf({ ...png, size: 0 }, [], limits) ?? "", /empty/);
});

test("a file goes as the part that its kind asks for", () => {
  assert.deepEqual(partOf(file), { type: "image_url", image_url: { url: file.url } });
  assert.deepEqual(partOf({ ...file, mime: "audio/mpeg" }), { type: "input_audio", input_audio: { format: "mp3", blob: "ab" } });
  assert.deepEqual(partOf({ ...file, mime: "image/svg+xml" }), { type: "file", name: "a.png", mime: "image/svg+xml", blob: "ab" });
  assert.equal(isImage("image/svg+xml"), false);
});

test("what waits is said in words, and only what is known whole can be edited", () => {
  const item = { client_request_id: "r", priority: false, command_type: "user_message", preview: "hi", content: "hi" };
  assert.equal(wordsOf(item), "hi");
  assert.equal(wordsOf({ ...item, command_type: "regenerate", preview: "regenerate" }), "Answer again");
  assert.equal(isEditable(item), true);
  assert.equal(isEditable({ ...item, preview: "[Image attachment]", content: "" }), false);
  assert.equal(isEditable({ ...item, content: "x".repeat(8_192) }), false);
  const held = { chatId: "c", requestId: "r", type: "user_message", body: JSON.stringify({ content: "hi" }) };
  assert.equal(heldText(held), "hi");
  assert.equal(heldText({ ...held, body: JSON.stringify({ content: "", attachments: [{}, {}] }) }), "2 attached");
  assert.equal(heldText({ ...held, type: "set_params" }), "");
});
