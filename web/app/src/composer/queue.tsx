/** Lists messages in the server's queue, messages that wait for the connection, and messages that were refused. */

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

/**
 * Shows a message that waits for the connection. If the message may have reached the server, it stays in the list until
 * it is taken back.
 */
function NotSent({ held }: { held: Held }) {
  const take = (isToEdit: boolean) => {
    const opened = chat.peek();
    if (opened) void withdraw(opened, held, { isToEdit });
  };
  const isOver = isWithdrawn(held);
  return (
    <li title={isOver ? "The server may have this message. It will be asked to take it back as soon as you are connected." : undefined}>
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

/**
 * Returns the commands of this page that the server has not shown yet. With a good connection such commands disappear
 * too quickly to be read. In this case only commands that are being taken back are listed.
 */
function unseen(waiting: readonly QueuedItem[]): Held[] {
  const { state: standing, reason } = connection.value; // read so that this list is updated too: the client replaces the object at every change
  const isGood = standing === "live" && !reason;
  const shown = new Set(waiting.map((item) => item.client_request_id));
  return (chat.value?.waiting ?? []).filter((one) => !shown.has(one.requestId) && heldText(one) !== "" && (!isGood || isWithdrawn(one)));
}

function Waiting({ item, isFirst }: { item: QueuedItem; isFirst: boolean }) {
  const [isEditing, setEditing] = useState(false);
  const id = item.client_request_id;
  const cancel = async () => {
    try {
      if (!(await chat.peek()?.cancel(id))) notify("This message has left the queue, because the assistant is answering it.");
    } catch (wrong) {
      notify(`The message was not removed: ${(wrong as Error).message}. Try again when you are connected.`);
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
            title="Send after the present step"
            onClick={() => void command({ type: "edit_queued", target_request_id: id, priority: true, position: 0 })}
          >
            Next
          </button>
        )}
        <button
          type="button"
          title="Stop the answer and send now"
          onClick={() => void command({ type: "edit_queued", target_request_id: id, interrupt: true })}
        >
          Stop and send
        </button>
        <IconButton name="close" label="Cancel" onClick={() => void cancel()} />
      </span>
    </li>
  );
}

/** Edits a waiting message. If the message leaves the queue during the edit, the new text is kept beside the queue. */
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
  useEffect(() => save, []); // runs when the message has left the queue, or another chat is opened
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
