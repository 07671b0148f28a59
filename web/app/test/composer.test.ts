/** Tests that drafts are not lost, which files may be attached, and the texts about waiting messages. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { isImage, partOf, refusalOf } from "../src/composer/files.ts";
import { fileOf } from "../src/composer/held_draft.ts";
import { listed } from "../src/composer/names.ts";
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
  assert.match(refusalOf({ ...png, size: 1_001 }, [], limits) ?? "", /^a little more than the 1 kB that can be attached. Choose a smaller one/);
  assert.match(refusalOf({ ...png, size: 9_000 }, [], limits) ?? "", /^9 kB, and at most 1 kB can be attached/);
  assert.match(refusalOf(png, [file, file], limits) ?? "", /at most 2 images .* the next message/);
  assert.match(refusalOf({ ...png, type: "text/csv", size: 1_500 }, [file, file, file], limits) ?? "", /at most 3 files/);
  assert.match(refusalOf({ ...png, size: 0 }, [], limits) ?? "", /the file is empty/);
});

test("the names of files stand in one line", () => {
  assert.equal(listed(["a"]), "a");
  assert.equal(listed(["a", "a", "b"]), "a and b");
  assert.equal(listed(["a", "b", "c", "d"]), "a, b and 2 more");
});

test("a tab follows another one's draft, unless it has written something else", () => {
  const store = new MapStore();
  const [one, two] = [new Drafts(store), new Drafts(store)];
  const key = "threadcast.draft.c";
  const say = (drafts: Drafts, text: string) => {
    const oldValue = store.getItem(key);
    drafts.write("c", { text, files: [] });
    return { key, oldValue, newValue: store.getItem(key) };
  };
  assert.equal(two.read("c").text, "");
  assert.deepEqual(two.heard(say(one, "hel")), ["c", { text: "hel", files: [] }]);
  two.heard(say(one, "hello"));
  assert.equal(two.read("c").text, "hello");
  two.write("c", { text: "mine", files: [] });
  assert.equal(two.heard({ key, oldValue: JSON.stringify({ text: "hello" }), newValue: null }), undefined);
  assert.equal(two.read("c").text, "mine");
  assert.equal(two.heard({ key: "theme", oldValue: null, newValue: "dark" }), undefined);
});

test("what a part refers to is found again in it", () => {
  for (const mime of ["image/png", "audio/mpeg", "text/csv"]) {
    const [found] = fileOf(partOf({ ...file, mime }));
    assert.deepEqual([found?.hash, found && partOf(found)], ["ab", partOf({ ...file, mime })]);
  }
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
  assert.equal(heldText({ ...held, type: "withdrawn" }), "hi");
  assert.equal(heldText({ ...held, type: "set_params" }), "");
});
