/** A run has had its model calls: may it have as many again, end here, or end with a summary of what it has found? */

import type { PauseReason } from "threadcast-client";
import { useId } from "preact/hooks";

import { command } from "../state/actions.ts";
import { withContext } from "../state/place.ts";
import { Icon } from "../ui/icon.tsx";
import { answer, isSent, questionKey } from "./decide.ts";
import { counted } from "./format.ts";
import { Standing } from "./question.tsx";
import asksCss from "./questions.module.css";

const SUMMARY_PLEASE = "Stop here. Sum up what you have found so far, and what is left to do.";

export function LimitQuestion({ reason, runId }: { reason: PauseReason; runId: string | null | undefined }) {
  const heading = useId();
  const key = questionKey(reason);
  const isBusy = isSent(key);
  const more = typeof reason.input?.max_rounds === "number" ? reason.input.max_rounds : null;
  const decide = (accepted: boolean) =>
    answer([key], { type: "tool_decision", tool_call_id: reason.tool_call_id, accepted, input_hash: reason.input_hash || null });
  /** The run ends, and a question without tools is asked right after it: it waits in the queue until then. */
  const summarize = () => {
    decide(false);
    void command({ type: "user_message", content: SUMMARY_PLEASE, params: { tool_use: "none" }, ...withContext() });
  };
  return (
    <div class={asksCss.question} role="group" aria-labelledby={heading} data-call={reason.tool_call_id} data-run={runId}>
      <header id={heading}>
        <Icon name="history" />
        <span><b>The limit of model calls is reached.</b> Go on?</span>
        {reason.rule && <span class={asksCss.questionRule}>{reason.rule}</span>}
      </header>
      <div class={asksCss.choices}>
        <button type="button" class="primary" disabled={isBusy} onClick={() => decide(true)}>
          {more ? `Continue, up to ${counted(more, "more call")}` : "Continue"}
        </button>
        <button type="button" disabled={isBusy} onClick={summarize}>Finish with a summary</button>
        <span class={asksCss.spring} />
        <button type="button" class="dangerous" disabled={isBusy} onClick={() => decide(false)}>Stop</button>
      </div>
      <Standing questionKey={key} />
    </div>
  );
}
