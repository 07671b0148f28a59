/**
 * Tests one connection for many chats: the maximum number of chats, events during silence, and a client that the server
 * no longer knows.
 */

import assert from "node:assert/strict";
import type { IncomingMessage, ServerResponse } from "node:http";
import { test } from "node:test";

import type { RetryPolicy } from "../src/backoff.js";
import { Client } from "../src/client.js";
import type { ChatsList } from "../src/feed.js";
import { WITHDRAWN } from "../src/outbox.js";
import { RemoteHub, serve, type Port } from "../src/ports.js";
import { CHATS_MAX, Hub } from "../src/source.js";
import { Wire } from "../src/wire.js";
import { listening, snapshotBlock, until } from "./support.js";

const QUICK: Partial<RetryPolicy> = { pauseFirstMs: 1, pauseMaxMs: 5 };

/** A server that carries as many chats on a stream as a real server, and accepts the caller while `knows` is true. */
class FakeServer {
  url = "";
  knows = true;
  /** The chats of the streams that are open. */
  readonly streams = new Map<string, { chats: Set<string>; response: ServerResponse }>();
  refused = 0;
  private seq = 0;

  async start(): Promise<this> {
    this.url = await listening((request, response) => this.answer(request, response));
    return this;
  }

  get chats(): string[] {
    return [...this.streams.values()].flatMap(({ chats }) => [...chats]);
  }

  private answer(request: IncomingMessage, response: ServerResponse): void {
    const { pathname, searchParams } = new URL(request.url ?? "", "http://x");
    const say = (status: number, body: object) => response.writeHead(status, { "Content-Type": "application/json" }).end(JSON.stringify(body));
    if (!this.knows) return void say(401, { detail: "the token is not known", code: "unauthorized" });
    if (pathname === "/v1/chats/feed") return this.begin(response, 'data: {"seq":"0","type":"feed_snapshot","chats":[]}\n\n');
    if (pathname === "/v1/chats/subscribe") {
      const name = searchParams.get("stream_id") ?? "";
      const chats = new Set(searchParams.getAll("chat_id"));
      if (chats.size > CHATS_MAX) return void (this.refused++, say(400, { detail: "too many", code: "bad_request" }));
      this.streams.set(name, { chats, response });
      response.on("close", () => this.streams.get(name)?.response === response && this.streams.delete(name));
      return this.begin(response, [...chats].map((id) => this.snapshot(id)).join(""));
    }
    let text = "";
    request.setEncoding("utf8").on("data", (piece: string) => (text += piece));
    request.on("end", () => {
      const stream = this.streams.get(pathname.split("/").at(-1) ?? "");
      if (!pathname.startsWith("/v1/streams/")) return say(202, { status: "accepted" });
      if (!stream) return say(404, { code: "not_found" });
      const { add, remove } = JSON.parse(text) as { add: { chat_id: string }[]; remove: string[] };
      const wanted = new Set([...stream.chats].filter((id) => !remove.includes(id)));
      for (const { chat_id } of add) wanted.add(chat_id);
      if (wanted.size > CHATS_MAX) return (this.refused++, say(400, { detail: "too many", code: "bad_request" }));
      stream.chats = wanted;
      say(200, { status: "applied" });
      for (const { chat_id } of add) stream.response.write(this.snapshot(chat_id));
    });
  }

  private begin(response: ServerResponse, blocks: string): void {
    response.writeHead(200, { "Content-Type": "text/event-stream" });
    response.write(`: hb 0\n${blocks}`);
  }

  private snapshot(chatId: string): string {
    return snapshotBlock(chatId, String(++this.seq));
  }
}

const MORE = CHATS_MAX + 6;
const ids = Array.from({ length: MORE }, (_, at) => `c${at}`);

test("a program has as many lines as its chats need", async () => {
  const server = await new FakeServer().start();
  const client = new Client({ url: server.url, retryPolicy: QUICK });
  const chats = ids.map((id) => client.chat(id));
  await until(() => chats.every(({ isReady }) => isReady), "snapshots of all");
  assert.deepEqual([server.streams.size, server.refused, chats.filter(({ failure }) => failure).length], [2, 0, 0]);
  client.close();
});

test("tabs share one line: it carries the chats that were looked at last, and the others when somebody looks", async () => {
  const server = await new FakeServer().start();
  const hub = new Hub(new Wire({ url: server.url, retryPolicy: QUICK }), 1);
  const has = new Map<string, string>();
  const leave = ids.map((id) =>
    hub.watch(id, (item) => {
      if (item.kind === "resting") has.set(id, "rests");
      else if (item.kind === "event") has.set(id, "live");
      else if (item.kind === "gone") has.set(id, "gone");
    }),
  );
  await until(() => has.size === MORE, "a word to each");
  const resting = () => ids.filter((id) => has.get(id) === "rests");
  assert.deepEqual([resting(), server.refused], [ids.slice(CHATS_MAX), 0]);

  for (const id of ids.slice(1)) hub.look(id); // c0 was never looked at, and c1 longest ago
  await until(() => ids.slice(-5).every((id) => has.get(id) === "live"), "the last ones live");
  const rests = resting();
  assert.equal(rests.length, MORE - CHATS_MAX);
  assert.ok(rests.includes("c0"));
  hub.look("c0");
  await until(() => has.get("c0") === "live", "the one that is looked at");
  assert.equal(resting().length, MORE - CHATS_MAX);

  leave[MORE - 1]!(); // and the waiting chat takes its place
  await until(() => resting().length === MORE - 1 - CHATS_MAX, "a place for one more");
  await until(() => server.chats.length === CHATS_MAX, "a full stream");
  assert.deepEqual([server.streams.size, server.refused], [1, 0]);
  hub.close();
});

test("a tab behind a port is told that its chat rests, and has it when it looks", async () => {
  const server = await new FakeServer().start();
  const hub = new Hub(new Wire({ url: server.url, retryPolicy: QUICK }), 1);
  const tab = new RemoteHub();
  const takes: ((message: unknown) => void)[] = [];
  const end = (mine: number, other: number): Port => ({
    post: (message) => queueMicrotask(() => takes[other]?.(structuredClone(message))),
    listen: (take) => void (takes[mine] = take),
  });
  serve(hub, end(0, 1));
  tab.move(end(1, 0));
  const items: string[] = [];
  for (const id of ids.slice(0, CHATS_MAX)) tab.watch(id, () => {});
  tab.watch("late", (item) => items.push(item.kind));
  await until(() => items.includes("resting"), "a chat that rests");
  tab.look("late");
  await until(() => items.includes("event"), "its snapshot");
  assert.equal(server.refused, 0);
  hub.close();
});

test("an overdue heartbeat is told, with since when, and that the line speaks again", async () => {
  const server = await new FakeServer().start();
  const client = new Client({ url: server.url, retryPolicy: { ...QUICK, quietMs: 60, silenceMs: 60_000 } });
  const lists: ChatsList[] = [];
  client.follow((list) => lists.push(list));
  const chat = client.chat("c");
  const began = performance.now();
  await until(() => chat.connection.silentSince !== undefined, "a silent chat");
  await until(() => lists.at(-1)?.silentSince !== undefined, "a silent list");
  assert.equal(chat.connection.state, "live");
  assert.ok((chat.connection.silentSince as number) >= began - 1);
  assert.ok(performance.now() - (chat.connection.silentSince as number) >= 60);
  [...server.streams.values()][0]!.response.write(": hb 1\n");
  await until(() => chat.connection.silentSince === undefined, "a word");
  assert.equal(chat.connection.state, "live");
  await until(() => chat.connection.silentSince !== undefined, "silence again");
  const stream = [...server.streams.values()][0]!.response;
  chat.send("Are you there?"); // an answer to this shows that the server is there, and that the line is not
  await until(() => [...server.streams.values()].some(({ response }) => response !== stream), "another line");
  client.close();
});

test("a caller whom the server forgot waits for a sign-in, holds what is sent, and goes on", async () => {
  const server = await new FakeServer().start();
  server.knows = false;
  const client = new Client({ url: server.url, retryPolicy: QUICK, awaitsSignIn: true });
  let list: ChatsList | undefined;
  client.follow((now) => (list = now));
  const chat = client.chat("c");
  await until(() => chat.connection.isSignedOut === true && list?.isSignedOut === true, "a word of it");
  chat.send("kept");
  await until(() => chat.connection.held === 1, "a held command");
  server.knows = true;
  client.retry();
  await until(() => chat.isReady && list?.isLive === true, "the way on");
  assert.deepEqual([chat.failure, chat.connection.isSignedOut, list?.isSignedOut], [null, undefined, undefined]);
  client.close();
});

test("a command that is being taken back is kept, and not counted as waiting to be sent", async () => {
  const server = await new FakeServer().start();
  const client = new Client({ url: server.url, retryPolicy: QUICK, awaitsSignIn: true });
  const chat = client.chat("c");
  await until(() => chat.connection.state === "live", "a line");
  server.knows = false; // every request is refused from here on, so nothing is taken back yet
  const { requestId } = chat.send("unwanted");
  await until(() => chat.connection.isSignedOut === true, "a post that was refused");
  assert.equal(chat.connection.held, 1);
  void chat.withdraw(requestId).catch(() => {});
  assert.deepEqual([chat.connection.held, chat.waiting.map(({ type }) => type)], [0, [WITHDRAWN]]);
  client.close();
});

test("without anybody who could sign in a wrong token ends the chat", async () => {
  const server = await new FakeServer().start();
  server.knows = false;
  const client = new Client({ url: server.url, retryPolicy: QUICK });
  const chat = client.chat("c");
  await until(() => chat.failure !== null, "an end");
  assert.equal(chat.failure?.message, "the token is not known");
  client.close();
});
