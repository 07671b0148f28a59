/** One line for many chats: how many it carries, what it says when nothing comes, and a caller whom the server forgot. */

import assert from "node:assert/strict";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { after, test } from "node:test";

import type { Patience } from "../src/backoff.js";
import { Client } from "../src/client.js";
import type { ChatsList } from "../src/feed.js";
import { RemoteHub, serve, type Port } from "../src/ports.js";
import { CHATS_MAX, Hub } from "../src/source.js";
import { Wire } from "../src/wire.js";

const QUICK: Partial<Patience> = { pauseFirstMs: 1, pauseMaxMs: 5 };
const RUNTIME = { state: "idle", paused: false, error: null, queue_size: 0, queued_items: [], pause_reasons: [] };

const ends: (() => void)[] = [];
after(() => ends.forEach((end) => end()));

/** A server that carries as many chats on a stream as a real one does, and knows who calls while `knows` is true. */
class FakeServer {
  url = "";
  knows = true;
  /** The chats of the streams that are open. */
  readonly streams = new Map<string, { chats: Set<string>; response: ServerResponse }>();
  refused = 0;
  private seq = 0;

  async start(): Promise<this> {
    const server = createServer((request, response) => this.answer(request, response));
    ends.push(() => (server.closeAllConnections(), server.close()));
    await new Promise<void>((done) => server.listen(0, "127.0.0.1", done));
    this.url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
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
    const event = { chat_id: chatId, seq: "0", type: "snapshot", thread: { id: chatId }, runtime: RUNTIME, messages: [], background_agents: [] };
    return `data: ${JSON.stringify(event)}\nid: ${++this.seq}\n\n`;
  }
}

/** Looks again and again until it is so; what is looked at tells nobody that it has changed. */
async function until(isSo: () => boolean, what: string): Promise<void> {
  const ends = performance.now() + 10_000;
  while (!isSo()) {
    assert.ok(performance.now() < ends, `it never came to ${what}`);
    await new Promise((done) => setTimeout(done, 5));
  }
}

const MORE = CHATS_MAX + 6;
const ids = Array.from({ length: MORE }, (_, at) => `c${at}`);

test("a program has as many lines as its chats need", async () => {
  const server = await new FakeServer().start();
  const client = new Client({ url: server.url, patience: QUICK });
  const chats = ids.map((id) => client.chat(id));
  await until(() => chats.every(({ isReady }) => isReady), "snapshots of all");
  assert.deepEqual([server.streams.size, server.refused, chats.filter(({ failure }) => failure).length], [2, 0, 0]);
  client.close();
});

test("tabs share one line: it carries the chats that were looked at last, and the others when somebody looks", async () => {
  const server = await new FakeServer().start();
  const hub = new Hub(new Wire({ url: server.url, patience: QUICK }), 1);
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

  leave[MORE - 1]!(); // and whoever waits has its place
  await until(() => resting().length === MORE - 1 - CHATS_MAX, "a place for one more");
  await until(() => server.chats.length === CHATS_MAX, "a full stream");
  assert.deepEqual([server.streams.size, server.refused], [1, 0]);
  hub.close();
});

test("a tab behind a port is told that its chat rests, and has it when it looks", async () => {
  const server = await new FakeServer().start();
  const hub = new Hub(new Wire({ url: server.url, patience: QUICK }), 1);
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
  const client = new Client({ url: server.url, patience: { ...QUICK, quietMs: 60, silenceMs: 60_000 } });
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
  const client = new Client({ url: server.url, patience: QUICK, awaitsSignIn: true });
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

test("without anybody who could sign in a wrong token ends the chat", async () => {
  const server = await new FakeServer().start();
  server.knows = false;
  const client = new Client({ url: server.url, patience: QUICK });
  const chat = client.chat("c");
  await until(() => chat.failure !== null, "an end");
  assert.equal(chat.failure?.message, "the token is not known");
  client.close();
});
