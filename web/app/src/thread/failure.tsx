/** Shows why an answer failed, what the person can do, and one button that tries again. */

import type { Failure, Message } from "threadcast-client";
import { textOf } from "threadcast-client";

import { earlier, state } from "../state/session.ts";
import { Icon } from "../ui/icon.tsx";
import { asked, goOn, regenerate } from "./acts.ts";
import { WayBack } from "./later.tsx";
import type { Turn } from "./turns.ts";
import { adviceOn, causeOf, wantsAnotherModel } from "./words.ts";
import css from "./failure.module.css";

/**
 * Shows why a turn has no complete answer; shows nothing for a turn with a complete answer. Older servers stored only
 * the failure of the last turn, in the chat's state.
 */
export function failureIn(turn: Turn, isLast: boolean): Failure | null {
  const { runtime } = state.value;
  const error = isLast && runtime.state === "error" ? (runtime.error ?? null) : null;
  return causeOf(turn, error);
}

export function FailureOf({ turn, isLast, failure }: { turn: Turn; isLast: boolean; failure: Failure }) {
  const { code, message, reason, status } = failure;
  const isAlone = turn.kind !== "answer";
  const model = isAlone ? failure.model : undefined; // below an answer the toolbar has this button already
  const isStopped = code === "aborted";
  const advice = adviceOn(failure, Date.now());
  return (
    <div class={`${isStopped ? css.stopped : css.failure} ${isAlone ? css.alone : ""}`} role={isLast && !isStopped ? "alert" : "note"} aria-label={isStopped ? "Stopped" : "What went wrong"}>
      {!isStopped && <Icon name="warn" />}
      <div class={css.words}>
        <p class={css.cause}>
          {status || reason ? message.replace(/\.$/, "") : message}
          {status && ` (${status})`}
          {reason ? <>: <bdi>{reason}</bdi></> : status ? "." : ""}
        </p>
        {(advice || model) && (
          <p class={css.advice}>
            {advice} {model && <span class={css.model}>{model}</span>}
          </p>
        )}
      </div>
      {!earlier.value && turn.failed?.role !== "error" && <Ways turn={turn} isLast={isLast} failure={failure} />}
    </div>
  );
}

function Ways({ turn, isLast, failure }: { turn: Turn; isLast: boolean; failure: Failure }) {
  const at = turn.failed ?? (turn.messages.at(-1) as Message);
  const first = turn.messages[0] as Message;
  const isAnswer = at.role === "assistant";
  // Repeats the failed step: continues an answer that could not be continued, or else requests a new answer beside the
  // failed answer.
  const isWhole = isAnswer && isLast && ["stop", "tool_calls", "length"].includes(at.finish_reason ?? "");
  const canContinue = isLast && isAnswer && !isWhole && textOf(at) !== "" && failure.code !== "content_filter";
  const retry = () => {
    if (isWhole) return goOn(at.message_id);
    if (isLast && !isAnswer) return regenerate(); // a tool's result is kept, and the model reads it again
    return regenerate(turn.kind === "answer" ? first.message_id : at.message_id);
  };
  return (
    <div class={css.ways}>
      {wantsAnotherModel(failure) && (
        <button type="button" onClick={() => (asked.value = { what: "model", messageId: first.message_id })}>Another model…</button>
      )}
      {canContinue && <button type="button" onClick={() => void goOn(at.message_id)}>Continue</button>}
      <button type="button" onClick={() => void retry()}>
        {failure.code === "max_tool_rounds" ? "Continue" : "Retry"}
      </button>
      {isLast && <WaysBack />}
    </div>
  );
}

/** A button that goes from the end of a resting chat to later messages of the tree. */
export function WaysBack() {
  const leafId = state.value.path.at(-1);
  return leafId && !earlier.value ? <WayBack key={leafId} leafId={leafId} /> : null;
}
