/** An answer to a post counts for the connection that asked for it, and for no newer one (PROTOCOL §15). */

import assert from "node:assert/strict";
import { test } from "node:test";

import { MemoryOutbox, WITHDRAWN, type Held } from "../src/outbox.js";
import { Postman, type Recipient } from "../src/postman.js";
import { Wire } from "../src/wire.js";

const recipient: Recipient = { accepted() {}, refused() {}, longDone() {}, withdrawn() {}, delayed() {} };

function held(type: string): Held {
  return { chatId: "c", requestId: "r", type, body: '{"client_request_id":"r"}' };
}

/** A server whose answers come when a test gives them; `posted(n)` waits for the n-th post. */
function answering() {
  const waiting: ((response: Response) => void)[] = [];
  const methods: string[] = [];
  let count = 0;
  let tell = () => {};
  const wire = new Wire({
    url: "http://127.0.0.1:1",
    fetch: (_, init) =>
      new Promise<Response>((answer) => {
        count++;
        methods.push(init?.method ?? "");
        waiting.push(answer);
        tell();
      }),
  });
  return {
    wire,
    methods,
    answer: (status: number, headers?: Record<string, string>, body: object = { status: "accepted", code: "x", detail: "x" }) =>
      waiting.shift()?.(new Response(JSON.stringify(body), { status, headers })),
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

test("what was never posted is withdrawn at once, and what may have arrived is asked back and posted no more", { timeout: 10_000 }, async () => {
  const server = answering();
  const outbox = new MemoryOutbox();
  const told: [string, boolean][] = [];
  const postman = new Postman(server.wire, "c", outbox, { ...recipient, withdrawn: (one, isGone) => told.push([one.requestId, isGone]) });
  const [first, second] = ["a", "b"].map((requestId) => ({ ...held("user_message"), requestId })) as [Held, Held];
  postman.put(first);
  postman.put(second);
  await server.posted(1);
  assert.equal(postman.withdraw(second), true);
  assert.equal(postman.withdraw(first), false, "it is on its way");
  assert.deepEqual(outbox.held("c").map(({ requestId, type }) => [requestId, type]), [["a", WITHDRAWN]]);
  server.answer(202);
  await server.posted(2);
  assert.deepEqual(server.methods, ["POST", "DELETE"]);
  server.answer(503);
  await server.posted(3);
  server.answer(404);
  await server.posted(4);
  assert.deepEqual(server.methods.slice(-2), ["DELETE", "GET"]);
  server.answer(200, {}, { messages: [{ client_request_id: "a" }] });
  while (!told.length) await new Promise((done) => setImmediate(done));
  assert.deepEqual([told, outbox.held("c")], [[["a", false]], []], "it had its effect already");
  postman.close();
});

test("a withdrawal that an earlier page left is asked for, and its message is not posted", { timeout: 10_000 }, async () => {
  const server = answering();
  const outbox = new MemoryOutbox();
  outbox.add({ ...held(WITHDRAWN), requestId: "old" });
  let told: boolean | null = null;
  const postman = new Postman(server.wire, "c", outbox, { ...recipient, withdrawn: (_, isGone) => (told = isGone) });
  postman.repost();
  await server.posted(1);
  server.answer(200, {}, { status: "cancelled" });
  while (told === null) await new Promise((done) => setImmediate(done));
  assert.deepEqual([server.methods, told], [["DELETE"], true]);
  postman.close();
});
