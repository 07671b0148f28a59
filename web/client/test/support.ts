/** Functions for tests of the client: servers that end with the test file, snapshots, and waits. */

import assert from "node:assert/strict";
import { createServer, type RequestListener } from "node:http";
import type { AddressInfo } from "node:net";
import { after } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";

const RUNTIME = { state: "idle", paused: false, error: null, queue_size: 0, queued_items: [], pause_reasons: [] };

const ends: (() => void)[] = [];
after(() => ends.forEach((end) => end()));

/** Starts a server whose requests `answer` answers, and which runs until the test file has ended. Returns its address.
 * */
export async function listening(answer: RequestListener): Promise<string> {
  const server = createServer(answer);
  ends.push(() => (server.closeAllConnections(), server.close()));
  await new Promise<void>((done) => server.listen(0, "127.0.0.1", done));
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

/** The block of a stream that holds the snapshot of an empty chat; `id` is its SSE id. */
export function snapshotBlock(chatId: string, id: string): string {
  const event = { chat_id: chatId, seq: "0", type: "snapshot", thread: { id: chatId }, runtime: RUNTIME, messages: [], background_agents: [] };
  return `data: ${JSON.stringify(event)}\nid: ${id}\n\n`;
}

/** Waits for a condition that no event reports. Fails after `ms` milliseconds. */
export async function until(isSo: () => boolean, what = String(isSo), ms = 10_000): Promise<void> {
  for (const end = performance.now() + ms; !isSo(); await sleep(5)) {
    assert.ok(performance.now() < end, `not within ${ms} ms: ${what}`);
  }
}
