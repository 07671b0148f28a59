/** Shows a call of a tool: one line with its state, and when unfolded also its arguments and its result. */

import { textOf, type IdeCall, type Message, type PauseReason, type ToolCall, type ToolStatus } from "threadcast-client";
import { useState } from "preact/hooks";

import { duration } from "../ui/figures.ts";
import { Icon, type IconName } from "../ui/icon.tsx";
import { elapsedOf, inputOf, shownName, stateOf, STATE_WORDS, subchatsOf, type CallState } from "./calls.ts";
import { clip, summaryLine } from "./format.ts";
import { Attachments, CallBody, Subchat } from "./later.tsx";
import css from "./calls.module.css";

export interface CallCardProps {
  call: ToolCall;
  result: Message | undefined;
  status: ToolStatus | undefined;
  reason: PauseReason | undefined;
  ideCall: IdeCall | undefined;
  chats: readonly string[] | undefined;
  isDraft: boolean;
  isRunOpen: boolean;
}

const PICTURES: Partial<Record<CallState, IconName>> = {
  done: "check",
  error: "warn",
  timed_out: "warn",
  unknown: "warn",
  denied: "close",
  cancelled: "close",
  interrupted: "close",
};

/** States that are named in words, because their icon alone is not clear. */
const IS_SAID: ReadonlySet<CallState> = new Set(["asking", "client", "error", "denied", "cancelled", "interrupted", "timed_out", "unknown"]);

export function CallCard({ call, result, status, reason, ideCall, chats, isDraft, isRunOpen }: CallCardProps) {
  const [isOpen, setOpen] = useState(false);
  const state = stateOf({ result, status, reason, ideCall, isDraft, isRunOpen });
  const elapsed = elapsedOf(result);
  const below = [...new Set([...(chats ?? []), ...subchatsOf(result)])];
  const name = shownName(call.function.name);
  return (
    <div class={css.call} data-tool={call.function.name} data-state={state}>
      <details open={isOpen} onToggle={(event) => setOpen(event.currentTarget.open)}>
        <summary>
          <span class={css.callMark}>{PICTURES[state] ? <Icon name={PICTURES[state]} /> : <i class={state === "asking" ? css.pulse : css.spin} />}</span>
          <b title={call.function.name}>{name}</b>
          <Now call={call} status={status} state={state} result={result} />
          {elapsed !== null && <span class={css.callTime}>{duration(elapsed)}</span>}
          <span class={IS_SAID.has(state) ? css.callState : "visually-hidden"}>{STATE_WORDS[state]}</span>
        </summary>
        {isOpen && <CallBody call={call} status={status} result={result} state={state} ideCall={ideCall} isDraft={isDraft} />}
      </details>
      {state === "running" && <Progress status={status} name={name} />}
      {below.map((id) => (
        <Subchat key={id} chatId={id} isDone={result !== undefined} />
      ))}
      {result && result.attachments?.some(isImage) && !isOpen && <Attachments all={result.attachments.filter(isImage)} />}
    </div>
  );
}

const isImage = (attachment: Record<string, unknown>) => attachment.type === "image_url";

/** The rest of the line: the progress of a running call, why it failed, or else a summary of its arguments. */
function Now({ call, status, state, result }: { call: ToolCall; status: ToolStatus | undefined; state: CallState; result: Message | undefined }) {
  if (state === "running" && (status?.message || status?.progress != null)) {
    const percent = status.progress == null ? "" : `${Math.round(status.progress * 100)} %`;
    return <span class={css.callLine} role="status">{[status.message || status.stage, percent].filter(Boolean).join(" · ")}</span>;
  }
  if (result && (state === "error" || state === "timed_out")) return <span class={`${css.callLine} ${css.bad}`}>{clip(textOf(result), 160)}</span>;
  return <span class={css.callLine}>{summaryLine(inputOf(call, status), status?.label)}</span>;
}

/** The bar is at the card's lower edge, so that nothing moves when the bar appears or disappears. */
function Progress({ status, name }: { status: ToolStatus | undefined; name: string }) {
  return status?.progress == null ? (
    <progress aria-label={`Progress of ${name}`} />
  ) : (
    <progress aria-label={`Progress of ${name}`} max={1} value={status.progress} />
  );
}
