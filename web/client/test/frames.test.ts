/** The parser gives the same frames however the bytes are cut, and no frame for an unfinished block. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { FrameParser, type Frame } from "../src/frames.js";

const WIRE =
  '\uFEFFdata: {"a":"ä🙂"}\nid: 1-2-3\n\n: hb 7\n\nevent: x\r\ndata: one\r\ndata:two\r\n\r\nretry: 250\n\ndata: unfinished';

function parse(bytes: Uint8Array, size: number): Frame[] {
  const parser = new FrameParser();
  const frames: Frame[] = [];
  for (let at = 0; at < bytes.length; at += size) frames.push(...parser.feed(bytes.subarray(at, at + size)));
  return frames;
}

test("bytes may be cut anywhere", () => {
  const bytes = new TextEncoder().encode(WIRE);
  const whole = parse(bytes, bytes.length);
  assert.deepEqual(whole, [
    { kind: "event", data: '{"a":"ä🙂"}', event: "message", id: "1-2-3" },
    { kind: "comment", text: "hb 7" },
    { kind: "event", data: "one\ntwo", event: "x", id: "1-2-3" },
    { kind: "retry", milliseconds: 250 },
  ]);
  for (let size = 1; size < bytes.length; size++) assert.deepEqual(parse(bytes, size), whole);
});

test("an id with a NUL and a retry that is no number are left out", () => {
  const frames = parse(new TextEncoder().encode("id: a\0b\nretry: soon\ndata: x\n\n"), 4);
  assert.deepEqual(frames, [{ kind: "event", data: "x", event: "message", id: "" }]);
});
