/** An answer to a post counts for the connection that asked for it, and for no newer one (PROTOCOL §15). */

import assert from "node:assert/strict";
import { test } from "node:test";

import { MemoryOutbox, type Held } from "../src/outbox.js";
import { Postman, type Recipient } from "../src/postman.js";
import { Wire } from "../src/wire.js";

const recipient: Recipient = { accepted() {}, refused() {}, longDone() {}, delayed() {} };

function held(type: string): Held {
  return { chatId: "c", requestId: "r", type, body: '{"client_request_id":"r"}' };
}

/** A server whose answers come when a test gives them; `posted(n)` waits for the n-th post. */
function answering() {
  const waiting: ((response: Response) => void)[] = [];
  let count = 0;
  let tell = () => {};
  const wire = new Wire({
    url: "http://127.0.0.1:1",
    fetch: () =>
      new Promise<Response>((answer) => {
        count++;
        waiting.push(answer);
        tell();
      }),
  });
  return {
    wire,
    answer: (status: number, headers?: Record<string, string>) =>
      waiting.shift()?.(new Response(JSON.stringify({ status: "accepted", code: "x", detail: "x" }), { status, headers })),
    posted: async (wanted: number) => {
      while (count < wanted) await new Promise<void>((done) => (tell = done));
    },
  };
}

test("a command that an older connection posted is posted again by the newer one", { timeout: 10_000 }, async () => {
  const server = answering();
  const postman = new Postman(server.wire, "c", new MemoryOutbox(), recipient);
  postman.put(held("user_message"));
  await server.posted(1);
  postman.repost();
  server.answer(202);
  await server.posted(2);
  assert.equal(postman.isDone, false, "the newer connection has not been answered");
  server.answer(202);
  await new Promise((done) => setImmediate(done));
  assert.equal(postman.isDone, true);
  postman.close();
});

test("a wait that an older connection was told is not waited by the newer one", { timeout: 10_000 }, async () => {
  const server = answering();
  const postman = new Postman(server.wire, "c", new MemoryOutbox(), recipient);
  postman.put(held("abort"));
  await server.posted(1);
  postman.repost();
  server.answer(503, { "Retry-After": "50" });
  await server.posted(2);
  postman.close();
  server.answer(202);
});
