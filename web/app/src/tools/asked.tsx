/** Shows each question as a card, with buttons that answer several questions at once. */

import { state } from "../state/session.ts";
import { answer, isSent, questionKey } from "./decide.ts";
import { counted } from "./format.ts";
import { IdeQuestion } from "./ide_question.tsx";
import { LimitQuestion } from "./limit_question.tsx";
import { ideCalls, openPreviews, reasons } from "./live.ts";
import { PreviewQuestion } from "./preview.tsx";
import { PersonQuestion } from "./person_question.tsx";
import { Question } from "./question.tsx";
import asksCss from "./questions.module.css";

/** The questions that one command can answer together; the limit of rounds is answered separately. */
const isCall = (reason: { type: string; approver?: string }) =>
  (reason.type === "confirmation" || reason.type === "outcome_unknown") && reason.approver !== "another";

export function Asked() {
  const asked = reasons.value;
  return (
    <section class={asksCss.questions} aria-label="Waiting for you">
      {asked.filter(isCall).length > 1 && <AllAtOnce />}
      {asked.map((reason) =>
        reason.type === "round_limit" ? (
          <LimitQuestion key={questionKey(reason)} reason={reason} runId={state.value.runtime.run_id} />
        ) : reason.type === "question" ? (
          <PersonQuestion key={questionKey(reason)} reason={reason} />
        ) : (
          <Question key={questionKey(reason)} reason={reason} />
        ),
      )}
      {ideCalls.value.map((call) => (
        <IdeQuestion key={call.tool_call_id} call={call} />
      ))}
      {openPreviews.value.map((payload) => (
        <PreviewQuestion key={payload.payload_id} payload={payload} />
      ))}
    </section>
  );
}

function AllAtOnce() {
  const calls = reasons.value.filter(isCall);
  const keys = calls.map(questionKey);
  const isBusy = keys.some(isSent);
  const decide = (accepted: boolean) =>
    answer(keys, {
      type: "tool_decisions",
      decisions: calls.map(({ tool_call_id, input_hash }) => ({ tool_call_id, accepted, input_hash: input_hash || null })),
    });
  return (
    <div class={asksCss.allAtOnce}>
      <span>{counted(calls.length, "call")} to decide</span>
      <button type="button" disabled={isBusy} onClick={() => decide(true)}>Allow all</button>
      <button type="button" disabled={isBusy} onClick={() => decide(false)}>Deny all</button>
    </div>
  );
}
