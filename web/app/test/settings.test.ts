/** Tests how typed settings are parsed, and from which layer each value comes. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { choiceFrom, numberFrom, originOf, toggled, type NumberParam } from "../src/settings/params.ts";

test("numbers are read as people write them, within their bounds", () => {
  const param = { kind: "number", min: 0, max: 2, step: 0.1 } as NumberParam;
  assert.deepEqual(["0,5", " 2 ", "", "2.1", "x"].map((text) => numberFrom(text, param)), [0.5, 2, null, undefined, undefined]);
  assert.equal(numberFrom("1.5", { ...param, step: 1 }), undefined);
  assert.deepEqual(["", "true", "false", "low"].map(choiceFrom), [null, true, false, "low"]);
});

test("a value tells the layer that it comes from, a tool its server", () => {
  assert.equal(originOf({ value: 1, layer: "thread" }, "Desk"), "set in this chat");
  assert.equal(originOf({ value: 1, layer: "profile" }, "Desk"), "from the mode Desk");
  assert.equal(originOf(undefined, "Desk"), "the server's default");
  assert.deepEqual(toggled(["a", "b"], "a", false), ["b"]);
  assert.deepEqual(toggled(null, "a", true), ["a"]);
});
