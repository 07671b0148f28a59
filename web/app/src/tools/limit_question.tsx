/**
 * Asks what to do when a run has reached its limit of model calls: allow as many calls again, end the run, or
 * summarize.
 */

import type { PauseReason } from "threadcast-client";
import { useId } from "preact/hooks";

import { command } from "../state/actions.ts";
import { withContext } from "../state/page_context.ts";
import { Icon } from "../ui/icon.tsx";
import { decide, isSent, questionKey } from "./decide.ts";
import { counted } from "./format.ts";
import { Standing } from "./question.tsx";
import asksCss from "./questions.module.css";

const SUMMARY_PLEASE = "Stop here. Summarize what you have found so far, and what is left to do.";

export function LimitQuestion({ reason, runId }: { reason: PauseReason; runId: string | null | undefined }) {
  const heading = useId();
  const key = questionKey(reason);
  const isBusy = isSent(key);
  const more = typeof reason.input?.max_rounds === "number" ? reason.input.max_rounds : null;
  /** Ends the run and sends a message without tools, which waits in the queue until the run has ended. */
  const summarize = () => {
    decide(reason, false);
    void command({ type: "user_message", content: SUMMARY_PLEASE, params: { tool_use: "none" }, ...withContext() });
  };
  return (
    <div class={asksCss.question} role="group" aria-labelledby={heading} data-call={reason.tool_call_id} data-run={runId}>
      <header id={heading}>
        <Icon name="history" />
        <span><b>The limit of model calls is reached.</b> Continue?</span>
        {reason.rule && <span class={asksCss.questionRule}>{reason.rule}</span>}
      </header>
      <div class={asksCss.choices}>
        <button type="button" class="primary" disabled={isBusy} onClick={() => decide(reason, true)}>
          {more ? `Continue, up to ${counted(more, "more call")}` : "Continue"}
        </button>
        <button type="button" disabled={isBusy} onClick={summarize}>Finish with a summary</button>
        <span class={asksCss.spring} />
        <button type="button" class="dangerous" disabled={isBusy} onClick={() => decide(reason, false)}>Stop</button>
      </div>
      <Standing questionKey={key} />
    </div>
  );
}
