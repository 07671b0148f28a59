/** Messages that wait for their turn, those that wait for the connection, and those that were not taken. */

import { useEffect, useRef, useState } from "preact/hooks";
import { Refused, type Held, type QueuedItem } from "threadcast-client";

import { command } from "../state/actions.ts";
import { chat, connection, isRunning, notify, notifyOf, saidElsewhere, state } from "../state/session.ts";
import { drop, keep, takeUp, unsent } from "../state/writing.ts";
import { IconButton } from "../ui/icon.tsx";
import { isTyped } from "./typed.ts";
import { heldText, isEditable, wordsOf } from "./waiting.ts";
import { isWithdrawn, withdraw } from "./withdrawing.ts";
import css from "./queue.module.css";

export function Queue() {
  const waiting = useWaiting(state.value.runtime.queued_items);
  const refused = unsent.value.filter(({ chatId }) => chatId === chat.value?.id);
  const held = unseen(waiting);
  if (!waiting.length && !refused.length && !held.length) return null;
  return (
    <ul class={css.queue} aria-label="Waiting messages" tabIndex={0}>
      {waiting.map((item, at) => (
        <Waiting key={item.client_request_id} item={item} isFirst={at === 0 && item.priority} />
      ))}
      {held.map((one) => (
        <NotSent key={one.requestId} held={one} />
      ))}
      {refused.map((one) => (
        <li key={one.id} class={css.refused} title={one.reason}>
          <span class={css.tag}>not taken</span>
          <span class={css.words} dir="auto">{one.draft.text || `${one.draft.files.length} files`}</span>
          <span class={css.acts}>
            <button type="button" onClick={() => takeUp(one)}>
              Put back
            </button>
            <IconButton name="close" label="Discard" onClick={() => drop(one.id)} />
          </span>
        </li>
      ))}
    </ul>
  );
}

/** An idle chat takes a message up at once. Showing the message in the queue for that moment would make the composer jump. */
const TAKEN_UP_MS = 400;

function useWaiting(items: readonly QueuedItem[]): readonly QueuedItem[] {
  const isTakenUp = items.length > 0 && !isRunning.value;
  const [isLate, setLate] = useState(false);
  useEffect(() => {
    setLate(false);
    if (!isTakenUp) return;
    const timer = setTimeout(() => setLate(true), TAKEN_UP_MS);
    return () => clearTimeout(timer);
  }, [isTakenUp]);
  return isTakenUp && !isLate ? [] : items;
}

/** A message that waits for the connection. If it may have reached the server, it stays in the list until it is taken back. */
function NotSent({ held }: { held: Held }) {
  const take = (isToEdit: boolean) => {
    const opened = chat.peek();
    if (opened) void withdraw(opened, held, { isToEdit });
  };
  const isOver = isWithdrawn(held);
  return (
    <li title={isOver ? "It may have reached the server, which is asked to take it back as soon as the line is there." : undefined}>
      <span class={css.tag}>{isOver ? "being taken back" : "not sent yet"}</span>
      <span class={css.words} dir="auto">{heldText(held)}</span>
      {!isOver && (
        <span class={css.acts}>
          {held.type === "user_message" && <IconButton name="edit" label="Edit" onClick={() => take(true)} />}
          <IconButton name="close" label="Cancel" onClick={() => take(false)} />
        </span>
      )}
    </li>
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
      notify(`It was not cancelled: ${(wrong as Error).message}. Try again when you are back on line.`);
    }
  };
  if (isEditing) return <Editor item={item} onClose={() => setEditing(false)} />;
  return (
    <li>
      <span class={css.tag}>{item.priority ? "next" : "waiting"}</span>
      <span class={css.words} dir="auto" title={item.content}>
        {wordsOf(item)}
      </span>
      <span class={css.acts}>
        {isEditable(item) && <IconButton name="edit" label="Edit" onClick={() => setEditing(true)} />}
        {!isFirst && (
          <button
            type="button"
            title="Sent after the step that runs now"
            onClick={() => void command({ type: "edit_queued", target_request_id: id, priority: true, position: 0 })}
          >
            Next
          </button>
        )}
        <button
          type="button"
          title="Stop the answer and send this at once"
          onClick={() => void command({ type: "edit_queued", target_request_id: id, interrupt: true })}
        >
          Stop and send
        </button>
        <IconButton name="close" label="Cancel" onClick={() => void cancel()} />
      </span>
    </li>
  );
}

/** Edits a waiting message. If the message is taken up meanwhile, the new text is kept beside the queue. */
function Editor({ item, onClose }: { item: QueuedItem; onClose: () => void }) {
  const opened = useRef(chat.peek());
  const text = useRef(item.content);
  const isOver = useRef(false);
  const save = () => {
    const [content, held] = [text.current, opened.current];
    if (isOver.current || !held) return;
    isOver.current = true;
    onClose();
    if (!content.trim() || content === item.content) return;
    const lost = (wrong: unknown) => {
      if (wrong instanceof Refused) keep(held.id, { text: content, files: [] }, wrong.message);
    };
    try {
      const { acked, requestId } = held.send({ type: "edit_queued", target_request_id: item.client_request_id, content });
      saidElsewhere.add(requestId);
      acked.catch(lost).finally(() => saidElsewhere.delete(requestId));
    } catch (wrong) {
      notifyOf(wrong);
    }
  };
  useEffect(() => save, []); // runs when the message does not wait any more, or another chat is opened
  return (
    <li class={css.edited}>
      <textarea
        aria-label="Waiting message"
        dir="auto"
        defaultValue={item.content}
        ref={(box) => box?.focus()}
        onInput={(event) => (text.current = event.currentTarget.value)}
        onKeyDown={(event) => {
          if (!isTyped(event) || event.shiftKey) return;
          if (event.key === "Enter") save();
          else if (event.key === "Escape") {
            isOver.current = true;
            onClose();
          } else return;
          event.preventDefault();
          event.stopPropagation();
        }}
        onBlur={save}
      />
    </li>
  );
}
