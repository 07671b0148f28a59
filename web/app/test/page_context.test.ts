/** Tests scopes in addresses, contexts from other pages, and the choices with which new chats begin. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { listFrom, listText, samplerNote, type ListParam } from "../src/settings/params.ts";
import { choicesFrom, DEFAULTS, goneModel, patchOf, remembered } from "../src/state/choices.ts";
import { contextFrom, contextOf, isAllowed, labelOf, scopeFrom, scopeOf } from "../src/state/contexts.ts";

test("an address names one to three names, or no scope, or what is none", () => {
  assert.deepEqual(["", "?a=1", "?scope=", "?scope=reports", "?scope=/reports/articles/", "?scope=Gr%C3%BC%C3%9Fe"].map(scopeFrom), ["", "", "", "reports", "reports/articles", "Grüße"]);
  const wrong = ["?scope=a/b/c/d", "?scope=a%20b", "?scope=a%00b", "?scope=a%E2%80%8Bb", `?scope=${"x".repeat(65)}`, "?scope=/"];
  assert.deepEqual(wrong.map(scopeFrom), wrong.map(() => null));
  assert.deepEqual([["a", "b"], "a/b", ["a/b"], [""], [1], {}, null, undefined].map(scopeOf), ["a/b", "a/b", "", "", "", "", "", ""]);
});

test("only origins that are named may hand context over, and none that is opaque", () => {
  const own = "https://chat.example.org";
  const allowed = ["https://app.example.com", "null", "*"];
  assert.equal(isAllowed("https://app.example.com", allowed, own), true);
  const others = ["https://app.example.com.evil.example", "http://app.example.com", "https://app.example.com:8443", "https://evil.example", "null", "", own];
  assert.deepEqual(others.filter((origin) => isAllowed(origin, allowed, own)), []);
  assert.equal(isAllowed(own, ["self"], own), true);
  assert.equal(isAllowed("null", ["self"], "null"), false);
});

test("a context is an object of JSON within its size, or it is told what is wrong", () => {
  assert.deepEqual(contextFrom({ context: null }), { context: null });
  assert.deepEqual(contextFrom({ context: { a: [1, { b: null }], gone: undefined } }), { context: { a: [1, { b: null }] } });
  assert.deepEqual(contextFrom({ context: JSON.parse('{"__proto__": {"polluted": true}}') as unknown }), { context: JSON.parse('{"__proto__": {"polluted": true}}') as unknown });
  assert.equal(({} as { polluted?: boolean }).polluted, undefined);
  const loop: { loop?: unknown } = {};
  loop.loop = loop;
  const wrong = [undefined, "text", 7, [1], new Map(), loop, { n: 10n }, () => 1].map((context) => contextFrom({ context }));
  assert.deepEqual(wrong.map((each) => "wrong" in each), [true, true, true, true, false, true, true, true]);
  const most = { text: "é".repeat((65_536 - '{"text":""}'.length) / 2) };
  assert.equal("wrong" in contextFrom({ context: most }), false);
  assert.match((contextFrom({ context: { text: `${most.text}éé` } }) as { wrong: string }).wrong, /65536 are taken/);
});

test("a context is called by its title, else by its most telling word, on one line", () => {
  const contexts = [{ title: " A\n\tB " }, { page: { title: "Articles" } }, { page: "home" }, { current_page: "reports" }, { scope: ["a", "b"] }, { id: 7 }, { x: {} }, {}];
  assert.deepEqual(contexts.map(labelOf), ["A B", "Articles", "home", "reports", "a / b", "id 7", "x", "no details"]);
  assert.equal(labelOf({ title: "x".repeat(200) }).length, 81);
});

test("a message has the context of the page, in the place of the address; without both, none of its own", () => {
  assert.equal(contextOf(null, "", { own: 1 }), undefined);
  assert.deepEqual(contextOf({ a: 1 }, "", { own: 1 }), { a: 1 });
  assert.deepEqual(contextOf(null, "a/b", { own: 1 }), { scope: ["a", "b"], own: 1 });
  assert.deepEqual(contextOf({ scope: "c" }, "a/b", null), { scope: "c" });
});

test("what was chosen is read from whatever is kept, and said in words", () => {
  assert.deepEqual([null, "", "x", "[]", "7", '{"model":7}'].map(choicesFrom), Array(6).fill(DEFAULTS));
  const kept = choicesFrom('{"model":"demo/echo","mode":"desk","other":1}');
  assert.deepEqual(kept, { model: "demo/echo", mode: "desk", custom_instructions: "" });
  assert.deepEqual([patchOf(kept), patchOf(DEFAULTS)], [{ model: "demo/echo", mode: "desk" }, null]);
  assert.equal(remembered({ ...kept, custom_instructions: "x".repeat(70) }, "Desk"), `Desk, the model demo/echo, your instructions “${"x".repeat(60)}…”`);
});

test("a model is gone when its provider lists others, or is no more", () => {
  const gone = (model: string, known = ["a/x"], providers = ["a", "b"]) => goneModel(model, known, providers);
  assert.deepEqual([gone("a/x"), gone("a/x?rate=1"), gone("b/late"), gone(""), gone("bare")], [null, null, null, null, null]);
  assert.deepEqual([gone("a/y"), gone("c/x")], ["a/y", "c/x"]);
});

test("stop texts are typed one on each line, and samplers say who takes them", () => {
  const param = { kind: "list", maxCount: 2, maxLength: 3 } as ListParam;
  assert.deepEqual(listFrom("a\n\n\\n\\n", param), ["a", "\n\n"]);
  assert.equal(listText(["a", "\n\n"]), "a\n\\n\\n");
  assert.deepEqual([listFrom("", param), listFrom("a\nb\nc", param), listFrom("abcd", param)], [null, { wrong: "Write at most 2 lines." }, { wrong: "A line may have at most 3 characters." }]);
  assert.deepEqual(["seed", "top_k", "stop"].map((key) => samplerNote(key, "a/x", ["seed"], ["seed", "top_k"])), ["", "The model a/x does not support this.", "No model of this server supports this."]);
});
