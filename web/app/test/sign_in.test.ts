/** Tests how a token is found in pasted text: alone, in a link or in quotes; and texts without a token. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { NoToken, tokenIn, tokenOfHash } from "../src/state/token_text.ts";

const HOST = "chat.example.org";
const read = (pasted: string) => tokenIn(pasted, HOST);
const wrong = (pasted: string) => {
  try {
    return read(pasted);
  } catch (caught) {
    assert.ok(caught instanceof NoToken);
    return caught.message;
  }
};

test("a token is taken from all that people paste", () => {
  const all = ["tc_a-b", "  tc_a-b\n", '"tc_a-b"', "`tc_a-b`", "Bearer tc_a-b", "#token=tc_a-b", "https://chat.example.org/#token=tc_a-b", "<https://chat.example.org/c/x#m-1&token=tc_a-b>"];
  assert.deepEqual(all.map(read), all.map(() => "tc_a-b"));
});

test("a token may hold what an address would read otherwise", () => {
  assert.equal(read("https://chat.example.org/#token=a%2Bb%2F"), "a+b/");
  assert.equal(tokenOfHash("#token=100%"), "100%");
  assert.equal(tokenOfHash("#m-1"), null);
});

test("what is no token says why, before any server is asked", () => {
  assert.match(wrong("   "), /Paste the token/);
  assert.match(wrong("https://chat.example.org/"), /no token in this link/);
  assert.match(wrong("https://other.example.org/#token=tc_a"), /link is for the server other\.example\.org/);
  assert.match(wrong("my token is secret"), /contains spaces/);
  assert.match(wrong("tökën"), /characters that tokens do not have/);
});
