/** Sends commands to the open chat, and requests to the public endpoints. Refusals become notices. */

import type { Chat, Sendable, Sent, UpdateMessage } from "threadcast-client";

import { chat, client, notify, notifyOf, earlier, saidElsewhere } from "./session.ts";

/** When to send while a run is open: in the queue, after the current step, or in place of the run. */
export type When = "queue" | "next" | "stop";

/** Sends a command to the open chat. Returns false if the command was refused; `session.ts` shows the reason. */
export async function command(sent: Sendable): Promise<boolean> {
  if (earlier.peek()) {
    notify("This is an earlier state of the chat. Return to the present to change it.");
    return false;
  }
  try {
    await chat.peek()?.send(sent).accepted;
    return chat.peek() !== null;
  } catch {
    return false;
  }
}

/**
 * Sends a changed version of an earlier message, as a new branch with a new answer. This command cannot end a run
 * (PROTOCOL §9), so with "stop" a second command ends the run while the first command waits. Throws the same errors as
 * `Chat.send`.
 */
export function rewrite(opened: Chat, messageId: string, words: Pick<UpdateMessage, "content" | "attachments">, when: When): Sent {
  const sent = opened.send({
    type: "update_message",
    message_id: messageId,
    ...words,
    mode: "branch",
    regenerate: true,
    ...(when === "next" && { priority: true }),
  });
  if (when === "stop") {
    const { acked, requestId } = opened.send({ type: "edit_queued", target_request_id: sent.requestId, interrupt: true });
    const forget = () => saidElsewhere.delete(requestId);
    saidElsewhere.add(requestId); // refused if the run has ended meanwhile; then the message is already being answered
    acked.then(forget, forget);
  }
  return sent;
}

/** Sends a request to an endpoint. Returns null if the request was refused, and shows the reason. */
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
