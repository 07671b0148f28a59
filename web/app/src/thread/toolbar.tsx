/** Shows under a message its version, buttons for common actions, and a menu with the others. */

import { computed } from "@preact/signals";
import { useState } from "preact/hooks";
import type { Message } from "threadcast-client";

import { failure, earlier } from "../state/session.ts";
import { copy } from "../ui/clipboard.ts";
import { IconButton } from "../ui/icon.tsx";
import { Menu, type MenuItem } from "../ui/menu.tsx";
import { asked, copyText, fork, goOn, linkTo, regenerate, select } from "./acts.ts";
import css from "./thread.module.css";

/** During time travel and in a deleted chat, messages can only be copied. */
const isFixed = computed(() => earlier.value !== null || failure.value !== null);

/** The time for which a button reports success. */
const DONE_MS = 1_500;

export function Copy({ messages }: { messages: readonly Message[] }) {
  const [isDone, setDone] = useState(false);
  const press = async () => {
    if (!(await copyText(messages))) return;
    setDone(true);
    setTimeout(() => setDone(false), DONE_MS);
  };
  return <IconButton name={isDone ? "check" : "copy"} label={isDone ? "Copied" : "Copy"} onClick={() => void press()} />;
}

/**
 * Shows `‹ 2/3 ›` with links to the other versions of this message; shows nothing if the message has only one version.
 */
export function Branches({ message }: { message: Message }) {
  const ids = message.sibling_ids ?? [];
  if (ids.length < 2) return null;
  const at = ids.indexOf(message.message_id);
  const to = (id: string | undefined) => id && void select(id);
  return (
    <span class={css.branches} role="group" aria-label="Versions">
      <IconButton name="back" label="Previous version" disabled={at <= 0} onClick={() => to(ids[at - 1])} />
      <span aria-label={`Version ${at + 1} of ${ids.length}`}>
        {at + 1}/{ids.length}
      </span>
      <IconButton name="forward" label="Next version" disabled={at >= ids.length - 1} onClick={() => to(ids[at + 1])} />
    </span>
  );
}

/** With `hasFailed` the failure is shown below, with its own Retry button. */
export function UserTools({ message, hasFailed, onEdit }: { message: Message; hasFailed: boolean; onEdit: () => void }) {
  const id = message.message_id;
  const retry: MenuItem[] = hasFailed ? [] : [{ label: "Retry from here", icon: "retry", onSelect: () => void regenerate(id) }];
  return (
    <div class={css.tools} role="toolbar" aria-label="Message">
      {!isFixed.value && <Branches message={message} />}
      <Copy messages={[message]} />
      {!isFixed.value && <IconButton name="edit" label="Edit" onClick={onEdit} />}
      {!isFixed.value && <Menu label="More" items={[...retry, ...common(id, id)]} />}
    </div>
  );
}

/**
 * `canContinue` says that this is the last answer of the chat and no run is open. With `hasFailed` the failure below
 * the answer has its own buttons.
 */
export function AnswerTools({ messages, canContinue, hasFailed }: { messages: readonly Message[]; canContinue: boolean; hasFailed: boolean }) {
  const first = messages[0] as Message;
  const last = messages.at(-1) as Message;
  const items: MenuItem[] = [
    { label: "Regenerate with another model…", icon: "retry", onSelect: () => (asked.value = { what: "model", messageId: first.message_id }) },
    ...(canContinue && !hasFailed ? [{ label: "Continue", icon: "play" as const, onSelect: () => void goOn(last.message_id) }] : []),
    ...common(first.message_id, last.message_id),
  ];
  return (
    <div class={css.tools} role="toolbar" aria-label="Answer">
      {!isFixed.value && <Branches message={first} />}
      <Copy messages={messages} />
      {!isFixed.value && !hasFailed && <IconButton name="retry" label="Regenerate" onClick={() => void regenerate(first.message_id)} />}
      {!isFixed.value && <Menu label="More" items={items} />}
    </div>
  );
}

function common(firstId: string, lastId: string): MenuItem[] {
  return [
    { label: "Fork into a new chat", icon: "fork", onSelect: () => void fork(lastId) },
    { label: "Copy link", icon: "copy", onSelect: () => void copy(linkTo(firstId)) },
    { label: "Delete…", icon: "trash", isDangerous: true, onSelect: () => (asked.value = { what: "delete", messageId: firstId }) },
  ];
}
