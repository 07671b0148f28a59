/**
 * An answer to a post counts for the connection on which the command was posted, and not for a newer connection
 * (PROTOCOL §15).
 */

import assert from "node:assert/strict";
import { test } from "node:test";

import { MemoryOutbox, WITHDRAWN, type Held } from "../src/outbox.js";
import { OutboxSender, type Recipient } from "../src/sender.js";
import { Wire } from "../src/wire.js";

const recipient: Recipient = { accepted() {}, refused() {}, longDone() {}, withdrawn() {}, delayed() {} };

function held(type: string): Held {
  return { chatId: "c", requestId: "r", type, body: '{"client_request_id":"r"}' };
}

/** A server that answers a post when the test tells it to; `posted(n)` waits for the n-th post. */
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
  const sender = new OutboxSender(server.wire, "c", new MemoryOutbox(), recipient);
  sender.put(held("user_message"));
  await server.posted(1);
  sender.repost();
  server.answer(202);
  await server.posted(2);
  assert.equal(sender.isDone, false, "the newer connection has not been answered");
  server.answer(202);
  await new Promise((done) => setImmediate(done));
  assert.equal(sender.isDone, true);
  sender.close();
});

test("a wait that an older connection was told is not waited by the newer one", { timeout: 10_000 }, async () => {
  const server = answering();
  const sender = new OutboxSender(server.wire, "c", new MemoryOutbox(), recipient);
  sender.put(held("abort"));
  await server.posted(1);
  sender.repost();
  server.answer(503, { "Retry-After": "50" });
  await server.posted(2);
  sender.close();
  server.answer(202);
});

test("what was never posted is withdrawn at once, and what may have arrived is asked back and posted no more", { timeout: 10_000 }, async () => {
  const server = answering();
  const outbox = new MemoryOutbox();
  const told: [string, boolean][] = [];
  const sender = new OutboxSender(server.wire, "c", outbox, { ...recipient, withdrawn: (one, isGone) => told.push([one.requestId, isGone]) });
  const [first, second] = ["a", "b"].map((requestId) => ({ ...held("user_message"), requestId })) as [Held, Held];
  sender.put(first);
  sender.put(second);
  await server.posted(1);
  assert.equal(sender.withdraw(second), true);
  assert.equal(sender.withdraw(first), false, "it is on its way");
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
  sender.close();
});

test("a withdrawal that an earlier page left is asked for, and its message is not posted", { timeout: 10_000 }, async () => {
  const server = answering();
  const outbox = new MemoryOutbox();
  outbox.add({ ...held(WITHDRAWN), requestId: "old" });
  let told: boolean | null = null;
  const sender = new OutboxSender(server.wire, "c", outbox, { ...recipient, withdrawn: (_, isGone) => (told = isGone) });
  sender.repost();
  await server.posted(1);
  server.answer(200, {}, { status: "cancelled" });
  while (told === null) await new Promise((done) => setImmediate(done));
  assert.deepEqual([server.methods, told], [["DELETE"], true]);
  sender.close();
});

test("the credential for tools goes out with commands, and with no other request", { timeout: 10_000 }, async () => {
  const sent: [string, string | null][] = [];
  let told = () => {};
  const posted = new Promise<void>((done) => (told = done));
  const wire = new Wire({
    url: "http://127.0.0.1:1",
    token: "ours",
    forwardAuthorization: () => "Bearer of the service",
    fetch: async (path, init) => {
      sent.push([String(path), new Headers(init?.headers).get("threadcast-forward-authorization")]);
      if (init?.method === "POST") told();
      return new Response('{"status":"accepted"}', { status: 202 });
    },
  });
  const outbox = new MemoryOutbox();
  const sender = new OutboxSender(wire, "c", outbox, recipient);
  sender.put(held("user_message"));
  await posted;
  await wire.ask("GET", "/v1/caps");
  sender.close();
  assert.deepEqual(sent, [
    ["http://127.0.0.1:1/v1/chats/c/commands", "Bearer of the service"],
    ["http://127.0.0.1:1/v1/caps", null],
  ]);
});
