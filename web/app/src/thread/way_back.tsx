/**
 * The way back from where the chat ends to the messages that go on from there.
 *
 * An attempt that failed before its first word leaves no message, so there is no other version whose `‹ 1/2 ›` could lead
 * away from it. A snapshot holds the active path alone; the tree is asked once, and again when the page was offline or
 * the way was refused.
 */

import { useEffect, useState } from "preact/hooks";
import type { ChatTree, Message } from "threadcast-client";

import { chat, client, connection } from "../state/session.ts";
import { select } from "./acts.ts";

/** `leafId`: the last message of the path, at rest. Use it as the key too. */
export function WayBack({ leafId }: { leafId: string }) {
  const [ways, setWays] = useState<readonly Message[]>([]);
  const [tries, setTries] = useState(0);
  const id = chat.value?.id;
  const isLive = connection.value.state === "live";
  useEffect(() => {
    if (!id || !isLive) return;
    let isOver = false;
    // Nobody has asked for it, so what goes wrong here is not told.
    client.get<ChatTree>(`/v1/chats/${id}?view=tree`).then(
      ({ messages }) => isOver || setWays(messages.filter((message) => message.parent_id === leafId)),
      () => undefined,
    );
    return () => {
      isOver = true;
    };
  }, [id, leafId, isLive, tries]);
  const newest = ways.find(({ message_id, sibling_ids }) => !sibling_ids?.length || message_id === sibling_ids.at(-1));
  if (!newest) return null;
  const what = newest.role === "assistant" ? "earlier answer" : "messages that followed";
  return (
    <button type="button" onClick={() => void select(newest.message_id).then((isTaken) => isTaken || setTries(tries + 1))}>
      Show the {what}
      {ways.length > 1 && ` (newest of ${ways.length})`}
    </button>
  );
}
