/** Messages that wait for their turn, those that wait for the connection, and those that were not taken. */

import { useState } from "preact/hooks";
import type { Held, QueuedItem } from "threadcast-client";

import { command } from "../state/actions.ts";
import { chat, connection, notify, notifyOf, state } from "../state/session.ts";
import { drop, takeUp, unsent } from "../state/writing.ts";
import { IconButton } from "../ui/icon.tsx";
import { heldText, isEditable, wordsOf } from "./waiting.ts";
import css from "./composer.module.css";

export function Queue() {
  const { queued_items: waiting } = state.value.runtime;
  const refused = unsent.value.filter(({ chatId }) => chatId === chat.value?.id);
  const held = unseen(waiting);
  if (!waiting.length && !refused.length && !held.length) return null;
  return (
    <ul class={css.queue} aria-label="Waiting messages">
      {waiting.map((item, at) => (
        <Waiting key={item.client_request_id} item={item} isFirst={at === 0 && item.priority} />
      ))}
      {held.map((one) => (
        <li key={one.requestId}>
          <span class={css.tag}>not sent yet</span>
          <span class={css.words} dir="auto">{heldText(one)}</span>
        </li>
      ))}
      {refused.map((one) => (
        <li key={one.id} class={css.refused} title={one.reason}>
          <span class={css.tag}>not taken</span>
          <span class={css.words} dir="auto">{one.draft.text || `${one.draft.files.length} files`}</span>
          <button type="button" onClick={() => takeUp(one)}>
            Put back
          </button>
          <IconButton name="close" label="Discard" onClick={() => drop(one.id)} />
        </li>
      ))}
    </ul>
  );
}

/** What the server has not told us that it has. On a good line that is over before it could be read. */
function unseen(waiting: readonly QueuedItem[]): Held[] {
  const { state: standing, held, reason } = connection.value;
  if (!held || (standing === "live" && !reason)) return [];
  const shown = new Set(waiting.map((item) => item.client_request_id));
  return (chat.value?.waiting ?? []).filter((one) => !shown.has(one.requestId) && heldText(one) !== "");
}

function Waiting({ item, isFirst }: { item: QueuedItem; isFirst: boolean }) {
  const [isEditing, setEditing] = useState(false);
  const id = item.client_request_id;
  const cancel = async () => {
    try {
      if (!(await chat.peek()?.cancel(id))) notify("It does not wait any more: it has been taken up.");
    } catch (wrong) {
      notifyOf(wrong);
    }
  };
  const save = (content: string) => {
    setEditing(false);
    if (content.trim() && content !== item.content) void command({ type: "edit_queued", target_request_id: id, content });
  };
  if (isEditing) {
    return (
      <li>
        <textarea
          dir="auto"
          aria-label="Waiting message"
          defaultValue={item.content}
          ref={(box) => box?.focus()}
          onKeyDown={(event) => {
            if (event.isComposing || event.shiftKey) return;
            if (event.key === "Enter") save(event.currentTarget.value);
            else if (event.key === "Escape") setEditing(false);
            else return;
            event.preventDefault();
            event.stopPropagation();
          }}
          onBlur={(event) => save(event.currentTarget.value)}
        />
      </li>
    );
  }
  return (
    <li>
      <span class={css.tag}>{item.priority ? "next" : "waiting"}</span>
      <span class={css.words} dir="auto" title={item.content}>
        {wordsOf(item)}
      </span>
      {isEditable(item) && <IconButton name="edit" label="Edit" onClick={() => setEditing(true)} />}
      {!isFirst && (
        <button
          type="button"
          title="The open answer gives way to this"
          onClick={() => void command({ type: "edit_queued", target_request_id: id, priority: true, position: 0 })}
        >
          Now
        </button>
      )}
      <IconButton name="close" label="Cancel" onClick={() => void cancel()} />
    </li>
  );
}
