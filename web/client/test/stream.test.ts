/** Tests one endless stream from a server whose connections end in all possible ways. */

import assert from "node:assert/strict";
import type { IncomingMessage, ServerResponse } from "node:http";
import { test } from "node:test";

import type { RetryPolicy } from "../src/backoff.js";
import { Refused } from "../src/errors.js";
import { Hub } from "../src/source.js";
import { Stream, type Item } from "../src/stream.js";
import { Wire } from "../src/wire.js";
import { listening, snapshotBlock } from "./support.js";

type Answer = (response: ServerResponse, request: IncomingMessage) => void;

/** A server that answers its n-th request by the n-th of `answers`, and records the `Last-Event-ID` of each request. */
async function scripted(...answers: Answer[]): Promise<{ url: string; asked: (string | undefined)[] }> {
  const asked: (string | undefined)[] = [];
  const url = await listening((request, response) => {
    asked.push(request.headers["last-event-id"] as string | undefined);
    (answers[asked.length - 1] ?? ((idle) => begin(idle)))(response, request);
  });
  return { url, asked };
}

function begin(response: ServerResponse, ...blocks: string[]): void {
  response.writeHead(200, { "Content-Type": "text/event-stream" });
  response.write(": hb 0\n" + blocks.join(""));
}

const SNAPSHOT = snapshotBlock("c", "9-4-4");
const cleared = (seq: number) => `data: {"chat_id":"c","seq":"${seq}","type":"pause_cleared"}\nid: 9-${4 + seq}-4\n\n`;

const QUICK: Partial<RetryPolicy> = { pauseFirstMs: 1, pauseMaxMs: 5, silenceMs: 200 };

/** Returns the items that arrive until `count` events of the chat have arrived. */
function follow(url: string, count: number): Promise<Item[]> {
  return new Promise((done) => {
    const items: Item[] = [];
    const stream = new Stream(new Wire({ url, retryPolicy: QUICK }), (item) => {
      items.push(item);
      if (items.filter((each) => each.kind === "event" || each.kind === "gone").length === count) {
        stream.close();
        done(items);
      }
    });
    stream.add("c");
  });
}

const seqs = (items: Item[]) => items.flatMap((item) => (item.kind === "event" ? [item.event.seq] : []));

test("after a break it goes on with the next event, and tells where it stood", async () => {
  const { url, asked } = await scripted(
    (response) => (begin(response, SNAPSHOT, cleared(1), "data: half of an ev"), setTimeout(() => response.destroy(), 20)),
    (response) => begin(response, cleared(2)),
  );
  const items = await follow(url, 3);
  assert.deepEqual(seqs(items), ["0", "1", "2"]);
  assert.deepEqual(asked, [undefined, "9-5-4"]);
  assert.deepEqual(items.map((item) => (item.kind === "event" ? item.position : 0)).filter(Boolean), [4, 5, 6]);
});

test("a missing event is noticed, and only a snapshot is taken after it", async () => {
  const { url, asked } = await scripted(
    (response) => begin(response, SNAPSHOT, cleared(1), cleared(3)),
    (response) => begin(response, SNAPSHOT),
  );
  assert.deepEqual(seqs(await follow(url, 3)), ["0", "1", "0"]);
  assert.deepEqual(asked, [undefined, undefined]);
});

test("what is missing is told, and whether a connection went on where the last one ended", async () => {
  const { url } = await scripted(
    (response) => (begin(response, SNAPSHOT, cleared(1)), response.end()),
    (response) => begin(response, cleared(3)),
    (response) => begin(response, SNAPSHOT),
  );
  const items = await follow(url, 3);
  const told = items.flatMap((item): unknown[] => (item.kind === "opened" ? [item.isResumed] : item.kind === "missed" ? [item] : []));
  assert.deepEqual(told, [false, true, { kind: "missed", chatId: "c", expected: 2, got: 3 }, false]);
});

test("a server that says when to come back is shutting down; one that ends without a word is not said to be", async () => {
  const { url } = await scripted(
    (response) => (begin(response, "retry: 10\n"), response.end()),
    (response) => (begin(response, "retry: 10\n\n"), response.end()), // a server of an older version
    (response) => (begin(response), response.end()),
    (response) => begin(response, SNAPSHOT),
  );
  const reasons = (await follow(url, 1)).flatMap((item) => (item.kind === "lost" ? [item.reason] : []));
  const goodbye = "the server is shutting down";
  assert.deepEqual(reasons, [goodbye, goodbye, "the server ended the stream"]);
});

test("a retry that anything follows is no goodbye", async () => {
  const { url } = await scripted(
    (response) => (begin(response, SNAPSHOT, "retry: 60000\n: hb 1\n"), response.end()),
    (response) => (begin(response, "retry: 60000\n", cleared(1)), response.end()),
    (response) => (begin(response, "retry: 60000\n"), setTimeout(() => (response.write(": hb 1\n"), response.end()), 20)),
    (response) => begin(response, cleared(2)),
  );
  const lost = (await follow(url, 3)).flatMap((item) => (item.kind === "lost" ? [item] : []));
  assert.deepEqual(lost.map((item) => item.reason), Array(3).fill("the server ended the stream"));
  assert.ok(lost.every((item) => item.retryMs < 60_000));
});

test("a cut ends a pause, and lets a connection be that is being made", async () => {
  const { url, asked } = await scripted(
    (response) => response.writeHead(503, { "Retry-After": "3600" }).end("{}"),
    (response) => setTimeout(() => begin(response, SNAPSHOT), 50),
  );
  await new Promise<void>((done) => {
    const stream = new Stream(new Wire({ url, retryPolicy: QUICK }), (item) => {
      if (item.kind === "lost") setTimeout(() => (stream.cut(), setTimeout(() => stream.cut(), 20)), 1);
      if (item.kind === "event") done(stream.close());
    });
    stream.add("c");
  });
  assert.equal(asked.length, 2);
});

test("an event that comes again is no next event either", async () => {
  const { url } = await scripted(
    (response) => begin(response, SNAPSHOT, cleared(1), cleared(1)),
    (response) => begin(response, SNAPSHOT),
  );
  assert.deepEqual(seqs(await follow(url, 3)), ["0", "1", "0"]);
});

test("a line that falls silent is given up", async () => {
  const { url, asked } = await scripted(
    (response) => begin(response, SNAPSHOT),
    (response) => begin(response, cleared(1)),
  );
  const items = await follow(url, 2);
  assert.ok(items.some((item) => item.kind === "lost" && item.reason === "the line fell silent"));
  assert.deepEqual(asked, [undefined, "9-4-4"]);
});

test("a server that asks to wait is waited for", async () => {
  const { url } = await scripted(
    (response) => response.writeHead(503, { "Retry-After": "0", "Content-Type": "application/json" }).end('{"detail":"busy"}'),
    (response) => (begin(response, "retry: 40\n\n"), response.end()),
    (response) => begin(response, SNAPSHOT),
  );
  const lost = (await follow(url, 1)).flatMap((item) => (item.kind === "lost" ? [item] : []));
  assert.equal(lost[0]?.reason, "busy");
  assert.ok((lost[1]?.retryMs ?? 0) >= 40);
});

test("a chat that is refused is gone, with the server's own words", async () => {
  const { url } = await scripted((response) =>
    response.writeHead(404, { "Content-Type": "application/json" }).end('{"detail":"no such chat","code":"not_found"}'),
  );
  const gone = (await follow(url, 1)).find((item) => item.kind === "gone");
  assert.equal(gone?.kind === "gone" && gone.wrong.message, "no such chat");
});

test("a refusal brings all that the server said", async () => {
  const { url } = await scripted((response) =>
    response.writeHead(410, { "Content-Type": "application/json" }).end('{"detail":"no longer held","code":"gone","first":12}'),
  );
  const refused = await new Wire({ url }).ask("GET", "/v1/chats/c?at=3").catch((wrong: unknown) => wrong);
  assert.ok(refused instanceof Refused);
  assert.deepEqual([refused.code, refused.status, refused.body?.first], ["gone", 410, 12]);
});

test("what answers but is no event stream is refused", async () => {
  const { url } = await scripted((response) => response.writeHead(200, { "Content-Type": "text/html" }).end("<p>"));
  assert.equal((await follow(url, 1)).at(-1)?.kind, "gone");
});

test("a chat that is left and looked at again at once begins with a snapshot", async () => {
  // The client may still ask the running stream to add the chat, but that stream ends before it can do so.
  const again: Answer = (response, request) => (request.method === "GET" ? begin(response, SNAPSHOT) : response.end("{}"));
  const { url, asked } = await scripted((response) => begin(response, SNAPSHOT, cleared(1)), again, again);
  const items: Item[] = [];
  await new Promise<void>((done) => {
    const stream = new Stream(new Wire({ url, retryPolicy: QUICK }), (item) => {
      if (item.kind !== "event") return;
      items.push(item);
      if (items.length === 2) {
        stream.remove("c");
        stream.add("c");
      } else if (items.length === 3) {
        stream.close();
        done();
      }
    });
    stream.add("c");
  });
  assert.deepEqual(seqs(items), ["0", "1", "0"]);
  assert.ok(asked.every((said) => said === undefined), "it asked to go on after what it had forgotten");
});

test("whoever goes from one chat to the next keeps the line, and who comes back at once what was there", async () => {
  const changes: string[] = [];
  let hear = () => {};
  const answer: Answer = (response, request) => {
    if (request.method === "GET") return begin(response, SNAPSHOT);
    request.setEncoding("utf8").on("data", (body: string) => changes.push(body)).on("end", () => (response.end("{}"), hear()));
  };
  const { url, asked } = await scripted(answer, answer, answer, answer);
  const hub = new Hub(new Wire({ url, retryPolicy: QUICK }));
  const begun = (chatId: string) =>
    new Promise<() => void>((done) => {
      const leave = hub.watch(chatId, (item) => item.kind === "event" && done(leave));
    });
  (await begun("c"))();
  const leave = await begun("c");
  const isTold = new Promise<void>((done) => (hear = () => changes.length === 2 && done()));
  leave();
  hub.watch("d", () => {});
  await isTold;
  hub.close();
  assert.deepEqual(changes.map((body) => JSON.parse(body)).sort((a, b) => a.remove.length - b.remove.length), [
    { add: [{ chat_id: "d" }], remove: [] },
    { add: [], remove: ["c"] },
  ]);
  assert.equal(asked.length, 3, "one connection and two changes");
});
