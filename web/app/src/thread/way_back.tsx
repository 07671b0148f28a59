/**
 * Shows a link from the end of the chat to later messages of the tree.
 *
 * An attempt that failed before its first word stores no message, so there is no other version and no `‹ 1/2 ›` that
 * could lead to the later messages. A snapshot contains only the active path. The tree is fetched once, and again after
 * the page was offline or the link was refused.
 */

import { useEffect, useState } from "preact/hooks";
import type { ChatTree, Message } from "threadcast-client";

import { chat, client, connection } from "../state/session.ts";
import { select } from "./acts.ts";

/** `leafId` is the last message of the path of a resting chat. Use it as the key too. */
export function WayBack({ leafId }: { leafId: string }) {
  const [ways, setWays] = useState<readonly Message[]>([]);
  const [tries, setTries] = useState(0);
  const id = chat.value?.id;
  const isLive = connection.value.state === "live";
  useEffect(() => {
    if (!id || !isLive) return;
    let isOver = false;
    // The person did not ask for this request, so a failure is not shown.
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
