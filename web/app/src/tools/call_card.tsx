/** One call of a tool: a line that says how it stands, and below it, when unfolded, what went in and what came out. */

import type { IdeCall, Message, PauseReason, ToolCall, ToolStatus } from "threadcast-client";
import { useState } from "preact/hooks";

import { Icon, type IconName } from "../ui/icon.tsx";
import { Attachments } from "./attachment.tsx";
import { elapsedOf, inputOf, isWithheld, resultText, shownName, stateOf, STATE_WORDS, subchatsOf, type CallState } from "./calls.ts";
import { Subchat } from "./subchat.tsx";
import { clip, duration, growingJson, prettyJson, summaryLine } from "./format.ts";
import { Fields, LongText } from "./value.tsx";

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

/** States whose name must be read, not guessed from a picture. */
const IS_SAID: ReadonlySet<CallState> = new Set(["asking", "client", "error", "denied", "cancelled", "interrupted", "timed_out", "unknown"]);

export function CallCard({ call, result, status, reason, ideCall, chats, isDraft, isRunOpen }: CallCardProps) {
  const [isOpen, setOpen] = useState(false);
  const state = stateOf({ result, status, reason, ideCall, isDraft, isRunOpen });
  const elapsed = elapsedOf(result);
  const below = [...new Set([...(chats ?? []), ...subchatsOf(result)])];
  const name = shownName(call.function.name);
  return (
    <div class={`call ${state}`} data-tool={call.function.name} data-state={state}>
      <details open={isOpen} onToggle={(event) => setOpen(event.currentTarget.open)}>
        <summary>
          <span class="call-mark">{PICTURES[state] ? <Icon name={PICTURES[state]} /> : <i class={state === "asking" ? "pulse" : "spin"} />}</span>
          <b title={call.function.name}>{name}</b>
          <Now call={call} status={status} state={state} result={result} />
          {elapsed !== null && <span class="call-time">{duration(elapsed)}</span>}
          <span class={IS_SAID.has(state) ? "call-state" : "visually-hidden"}>{STATE_WORDS[state]}</span>
        </summary>
        {isOpen && <Body call={call} status={status} result={result} state={state} ideCall={ideCall} isDraft={isDraft} />}
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

/** The rest of the line: how far it is while it runs, why it failed, else which call it is. */
function Now({ call, status, state, result }: { call: ToolCall; status: ToolStatus | undefined; state: CallState; result: Message | undefined }) {
  if (state === "running" && (status?.message || status?.progress != null)) {
    const percent = status.progress == null ? "" : `${Math.round(status.progress * 100)} %`;
    return <span class="call-line" role="status">{[status.message || status.stage, percent].filter(Boolean).join(" · ")}</span>;
  }
  if (result && (state === "error" || state === "timed_out")) return <span class="call-line bad">{clip(resultText(result), 160)}</span>;
  return <span class="call-line">{summaryLine(inputOf(call, status), status?.label)}</span>;
}

/** At the card's lower edge, so that nothing moves when it comes and goes. */
function Progress({ status, name }: { status: ToolStatus | undefined; name: string }) {
  return status?.progress == null ? (
    <progress aria-label={`Progress of ${name}`} />
  ) : (
    <progress aria-label={`Progress of ${name}`} max={1} value={status.progress} />
  );
}

function Body({ call, status, result, state, ideCall, isDraft }: {
  call: ToolCall;
  status: ToolStatus | undefined;
  result: Message | undefined;
  state: CallState;
  ideCall: IdeCall | undefined;
  isDraft: boolean;
}) {
  const input = ideCall?.args ?? inputOf(call, status);
  const isEmpty = typeof input === "object" && !Object.keys(input).length;
  return (
    <div class="call-body">
      <h4>Arguments</h4>
      {isEmpty ? (
        <p class="quiet">none, or not shown to people</p>
      ) : (
        <LongText isCode text={typeof input === "string" || isDraft ? growingJson(call.function.arguments) : JSON.stringify(input, null, 2)} />
      )}
      {status?.data != null && (
        <>
          <h4>So far</h4>
          <Fields data={status.data} />
        </>
      )}
      {result && <Result result={result} isBad={state !== "done"} />}
    </div>
  );
}

function Result({ result, isBad }: { result: Message; isBad: boolean }) {
  const text = resultText(result);
  const json = prettyJson(text);
  const files = result.extra?.files_changed;
  return (
    <>
      <h4>{isBad ? "Why" : "Result"}</h4>
      {isWithheld(result) ? (
        <p class="quiet">Hidden: only the model reads this result.</p>
      ) : text === "" ? (
        <p class="quiet">nothing</p>
      ) : json !== null ? (
        <LongText isCode text={json} />
      ) : (
        <div class={isBad ? "result-text bad" : "result-text"}>
          <LongText text={text} />
        </div>
      )}
      {Array.isArray(files) && files.length > 0 && <p class="quiet">Changed: {files.map(String).join(", ")}</p>}
      {result.attachments && <Attachments all={result.attachments} />}
    </>
  );
}
