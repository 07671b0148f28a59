/** Tests which schemas of questions have a form, and which answer the filled-in fields give. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { answerOf, fieldsOf } from "../src/tools/answer_form.ts";

const text = { type: "string" };

test("a flat object has fields with names, limits and defaults", () => {
  const fields = fieldsOf({
    type: "object",
    properties: {
      yourName: { ...text, maxLength: 5, default: "ann" },
      mail: { ...text, format: "email", title: "E-mail" },
      age: { type: "integer", minimum: 0, maximum: 9 },
      letters: { type: "boolean", default: true },
    },
    required: ["mail"],
  });
  assert.deepEqual(fields?.map(({ name, label, kind, isRequired }) => [name, label, kind, isRequired]), [
    ["yourName", "Your name", "text", false],
    ["mail", "E-mail", "text", true],
    ["age", "Age", "number", false],
    ["letters", "Letters", "boolean", false],
  ]);
  assert.deepEqual(fields?.map(({ input }) => input), [
    { type: "text", maxLength: 5 },
    { type: "email" },
    { type: "number", step: "1", min: 0, max: 9 },
    { type: "text" },
  ]);
  assert.deepEqual(answerOf(fields!, { mail: "a@b.c" }), { yourName: "ann", mail: "a@b.c", letters: true });
  assert.deepEqual(answerOf(fields!, { yourName: "", mail: "", age: "7", letters: false }), { mail: "", age: 7, letters: false });
});

test("choices keep their values, also several and those with titles", () => {
  const fields = fieldsOf({
    type: "object",
    properties: {
      size: { ...text, enum: ["s", "l"], enumNames: ["Small", "Large"] },
      count: { enum: [1, 2], default: 2 },
      colour: { ...text, oneOf: [{ const: "#f00", title: "Red" }, { const: "#0f0" }] },
      extras: { type: "array", items: { enum: ["a", "b", "c"] }, default: ["b"] },
    },
  })!;
  assert.deepEqual(fields.map(({ choices }) => choices.map(({ label }) => label)), [["Small", "Large"], ["1", "2"], ["Red", "#0f0"], ["a", "b", "c"]]);
  assert.deepEqual(answerOf(fields, {}), { count: 2, extras: ["b"] });
  assert.deepEqual(answerOf(fields, { size: [1], colour: [0], extras: [0, 2] }), { size: "l", count: 2, colour: "#f00", extras: ["a", "c"] });
});

test("an object without properties has an empty form", () => {
  assert.deepEqual(fieldsOf({ type: "object" }), []);
  assert.deepEqual(answerOf([], {}), {});
});

test("other schemas have no form", () => {
  for (const schema of [
    text,
    { type: "object", properties: { inner: { type: "object" } } },
    { type: "object", properties: { list: { type: "array", items: text } } },
    { type: "object", properties: { any: {} } },
    { type: "object", properties: {}, anyOf: [{}] },
    { type: "object", properties: { a: { $ref: "#/$defs/a" } }, $defs: { a: text } },
    { type: "object", properties: Object.fromEntries(Array.from({ length: 51 }, (_, at) => [`f${at}`, text])) },
  ]) {
    assert.equal(fieldsOf(schema), null);
  }
});
