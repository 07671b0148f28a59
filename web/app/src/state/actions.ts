/** What people do: a command to the open chat, or a request to one of the public endpoints. Refusals become notices. */

import type { Sendable } from "threadcast-client";

import { chat, client, notify, notifyOf, past } from "./session.ts";

/** Sends to the open chat; false when it was not taken. Why not is shown by `session.ts`, which hears every refusal. */
export async function command(sent: Sendable): Promise<boolean> {
  if (past.peek()) {
    notify("This is the chat as it was. Go back to now to change it.");
    return false;
  }
  try {
    await chat.peek()?.send(sent).accepted;
    return chat.peek() !== null;
  } catch {
    return false;
  }
}

/** Asks an endpoint; null when it refused, which is shown. */
export async function ask<T>(method: string, path: string, body?: unknown): Promise<T | null> {
  try {
    const answer = await client.request(method, path, {
      ...(body === undefined ? {} : { body: JSON.stringify(body), headers: { "Content-Type": "application/json" } }),
    });
    return answer.status === 204 ? ({} as T) : ((await answer.json()) as T);
  } catch (wrong) {
    notifyOf(wrong);
    return null;
  }
}
