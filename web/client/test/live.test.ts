/**
 * Tests the whole client on a real server: two tabs, a cut connection, a lost event, and commands that are sent during
 * faults.
 */

import assert from "node:assert/strict";
import { test } from "node:test";

import { connect, newId, snapshotOf, textOf, type Chat, type ChatEvent, type Client, type Happening, type Options } from "../src/index.js";
import { RemoteHub, serve } from "../src/ports.js";
import { Hub } from "../src/source.js";
import { messagePort } from "../src/tabs.js";
import { Wire } from "../src/wire.js";
import { until } from "./support.js";

const url = process.env.THREADCAST_URL as string;
const DEADLINE_MS = 60_000;
/** The text is long enough for two faults in mid-answer, on a busy machine. */
const STEADY = { model: "demo/essay?words=300&rate=100" };
const FAST = { model: "demo/essay?words=300&rate=300" };

async function with_(options: Options, run: (client: Client) => Promise<void>): Promise<void> {
  const client = connect({ url, retryPolicy: { pauseFirstMs: 5, pauseMaxMs: 50 }, ...options });
  try {
    await run(client);
  } finally {
    client.close();
  }
}

const fresh = () => `ts-${newId().slice(0, 8)}`;
const answered = (chat: Chat) =>
  chat.until((state) => state.path.length > 1 && chat.isAtRest && state.runtime.queue_size === 0, DEADLINE_MS);

function kinds(chat: Chat): string[] {
  const seen: string[] = [];
  chat.onEvent((event: ChatEvent) => seen.push(event.type));
  return seen;
}

test("two clients of one chat end with the same state, and so does one that comes later", () =>
  with_({}, (client) =>
    with_({}, async (other) => {
      const id = fresh();
      const [first, second] = [client.chat(id), other.chat(id)];
      const ack = await first.send("write", { params: FAST }).acked;
      assert.equal(ack.result.queued, true);
      await Promise.all([answered(first), answered(second)]);
      await second.until((state) => state.position === first.state.position);
      const late = other.chat(id);
      await late.until((state) => state.position === first.state.position);
      assert.deepEqual(snapshotOf(second.state), snapshotOf(first.state));
      assert.deepEqual(snapshotOf(late.state), snapshotOf(first.state));
      assert.equal(first.connection.state, "live");
      assert.equal(first.connection.held, 0);
    }),
  ));

test("a cut in mid-answer is resumed without a snapshot, a lost event is answered by one, and the text is whole", () =>
  with_({}, async (client) => {
    const chat = client.chat(fresh());
    const seen = kinds(chat);
    const happened: Happening[] = [];
    chat.onConnection((happening) => happened.push(happening));
    const written = (characters: number) =>
      chat.until((state) => (state.draft?.content.length ?? 0) > characters, DEADLINE_MS);
    chat.send("write", { params: STEADY });
    await written(100);
    client.faults.cut();
    await written(400);
    assert.equal(seen.filter((type) => type === "snapshot").length, 1);
    client.faults.drop();
    await answered(chat);
    assert.equal(seen.filter((type) => type === "snapshot").length, 2);
    const stored = await client.get<{ messages: { content: string }[] }>(`/v1/chats/${chat.id}`);
    assert.equal(textOf(chat.messages[1]!), stored.messages[1]?.content);
    assert.equal(textOf(chat.messages[1]!).split(/\s+/).length, 300);
    const [anew, resumed, again] = happened.flatMap((each) => (each.kind === "opened" ? [each.after] : []));
    assert.ok(anew === null && again === null && resumed! > 0 && resumed! < chat.state.position);
    assert.deepEqual(happened.filter((each) => each.kind === "missed").map((each) => each.got - each.expected), [1]);
    assert.equal(happened.at(-1)?.kind, "live");
  }));

test("when the network comes or goes the line is tried at once", () => {
  const network = new EventTarget();
  const { addEventListener, removeEventListener } = globalThis;
  Object.assign(globalThis, {
    addEventListener: network.addEventListener.bind(network),
    removeEventListener: network.removeEventListener.bind(network),
  });
  return with_({}, async (client) => {
    const chat = client.chat(fresh());
    const happened: string[] = [];
    chat.onConnection(({ kind }) => happened.push(kind));
    await chat.send("hello", { params: { model: "demo/echo?rate=0" } }).acked;
    await answered(chat);
    network.dispatchEvent(new Event("offline"));
    await chat.until(() => happened.filter((kind) => kind === "live").length === 2, DEADLINE_MS);
    assert.deepEqual(happened, ["opened", "live", "lost", "opened", "live"]);
  }).finally(() => Object.assign(globalThis, { addEventListener, removeEventListener }));
});

test("a command whose answers are lost takes effect once", () => {
  let posts = 0;
  const lossy: typeof fetch = async (input, init) => {
    const isLost = init?.method === "POST" && posts++ < 2;
    const response = await fetch(input, init);
    if (isLost) throw new TypeError("the reply was lost");
    return response;
  };
  return with_({ fetch: lossy }, async (client) => {
    const chat = client.chat(fresh());
    await chat.send("once", { params: { model: "demo/echo?rate=0" } }).acked;
    await answered(chat);
    assert.ok(posts > 0);
    assert.deepEqual(chat.messages.map((message) => message.role), ["user", "assistant"]);
  });
});

test("what was refused says why, and is not sent again", () =>
  with_({}, async (client) => {
    const chat = client.chat(fresh());
    const sent = chat.send("  ");
    await assert.rejects(sent.acked, { code: "invalid_content" });
    const refused = new Promise((done) => chat.onRefused((id, wrong) => id === later.requestId && done(wrong.code)));
    const later = chat.send({ type: "regenerate", message_id: "m" }); // at once, or when its turn comes
    assert.equal(await refused, "not_found");
    assert.equal(chat.connection.held, 0);
  }));

test("a client tool is claimed by one of two editors, and its answer reaches the model", () =>
  with_({ name: "one" }, (client) =>
    with_({ name: "two" }, async (other) => {
      const id = fresh();
      const carried: string[] = [];
      for (const [name, each] of Object.entries({ client, other })) {
        each.chat(id).onToolCall("open_file", (args) => {
          carried.push(name);
          return `opened ${String(args.path)}`;
        });
      }
      const chat = client.chat(id);
      chat.send('call open_file {"path":"a.txt"}', { params: { model: "demo/tools?rate=0" } });
      await answered(chat);
      assert.equal(carried.length, 1);
      assert.ok(chat.messages.some((message) => message.role === "tool" && textOf(message) === "opened a.txt"));
    }),
  ));

test("tabs behind ports see what a client of its own sees, also one that opens in mid-answer", () =>
  with_({}, async (client) => {
    const hub = new Hub(new Wire({ url }));
    const channels = [new MessageChannel(), new MessageChannel()];
    const tabs = channels.map(({ port1, port2 }) => {
      serve(hub, messagePort(port1 as unknown as MessagePort));
      const tab = new RemoteHub();
      tab.move(messagePort(port2 as unknown as MessagePort));
      return tab;
    });
    try {
      const id = fresh();
      const own = client.chat(id);
      const positions = tabs.map(() => 0);
      const types: string[][] = tabs.map(() => []);
      const watch = (tab: number) =>
        tabs[tab]!.watch(id, (item) => {
          if (item.kind !== "event") return;
          positions[tab] = item.position || positions[tab]! + 1;
          types[tab]!.push(item.event.type);
        });
      watch(0);
      await until(() => types[0]!.length > 0, "an event", DEADLINE_MS); // else its snapshot may be as late as the other one's
      own.send("write", { params: FAST });
      await own.until((state) => (state.draft?.content.length ?? 0) > 100, DEADLINE_MS);
      watch(1);
      await answered(own);
      await until(() => positions.every((position) => position === own.state.position), "the same position", DEADLINE_MS);
      assert.deepEqual(positions, tabs.map(() => own.state.position));
      assert.deepEqual(types.map((seen) => seen.filter((type) => type === "snapshot").length), [1, 1]);
      assert.ok(types[1]!.length < types[0]!.length);
    } finally {
      hub.close();
      for (const { port1, port2 } of channels) (port1.close(), port2.close());
    }
  }));

test("the list of chats follows without asking", () =>
  with_({}, async (client) => {
    const id = fresh();
    const states: string[] = [];
    const stop = client.follow((list) => states.push(list.chats.find((chat) => chat.id === id)?.state ?? ""));
    const chat = client.chat(id);
    chat.send("write", { params: FAST });
    await answered(chat);
    await chat.send({ type: "set_params", patch: { title: "Named" } }).acked;
    stop();
    assert.ok(states.includes("generating"), states.join());
  }));
