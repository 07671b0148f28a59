/**
 * Shows the traces of this chat's runs: models, times, tokens, prompts and tools. The server sends traces only to
 * callers with the permission `diagnostics`; other callers see the server's refusal.
 */

import { useEffect, useState } from "preact/hooks";
import { Refused, type RunTrace, type TracedRun, type TracedRuns, type TraceOperation, type TraceRound, type TraceToolRun } from "threadcast-client";

import { chat, client, isRunning } from "../state/session.ts";
import { IconButton } from "../ui/icon.tsx";
import { clock } from "./lines.ts";
import { lasted, spent, totals } from "./traces.ts";
import css from "./contents.module.css";
import drawerCss from "./drawer.module.css";

type Found<T> = { found: T } | { wrong: string } | null;

function useAsked<T>(path: string, again: unknown): [Found<T>, () => void] {
  const [answer, setAnswer] = useState<Found<T>>(null);
  const [asked, setAsked] = useState(0);
  useEffect(() => {
    let isWanted = true;
    client.get<T>(path).then(
      (found) => isWanted && setAnswer({ found }),
      (wrong: unknown) => isWanted && setAnswer({ wrong: sayWrong(wrong) }),
    );
    return () => {
      isWanted = false;
    };
  }, [path, asked, again]);
  return [answer, () => setAsked(asked + 1)];
}

function sayWrong(wrong: unknown): string {
  if (wrong instanceof Refused && wrong.status === 404) return "There are no runs yet.";
  return wrong instanceof Error ? wrong.message : String(wrong);
}

const runsOf = (chatId: string) => `/v1/chats/${encodeURIComponent(chatId)}/runs`;

export function Runs() {
  const [answer, again] = useAsked<TracedRuns>(runsOf(chat.value?.id ?? ""), isRunning.value);
  return (
    <>
      <div class={css.tools}>
        <span class={css.count}>newest first</span>
        <IconButton name="retry" label="Load the runs again" onClick={again} />
      </div>
      <div class={css.runs} tabIndex={0} role="region" aria-label="Runs">
        {answer && "wrong" in answer && <p class={drawerCss.hint}>{answer.wrong}</p>}
        {answer && "found" in answer && !answer.found.runs.length && <p class={drawerCss.hint}>There are no traces of runs yet.</p>}
        {answer && "found" in answer && answer.found.runs.map((run) => <Run key={run.run_id} run={run} />)}
      </div>
    </>
  );
}

function Run({ run }: { run: TracedRun }) {
  const [isOpen, setOpen] = useState(false);
  const { rounds_count: rounds, tool_runs_count: tools, operations_count: operations = 0 } = run;
  return (
    <details class={css.run} onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>
        <b data-outcome={run.outcome ?? "running"}>{run.outcome ?? "running"}</b>
        <span>
          {run.started_at ? clock(run.started_at) : ""} {lasted(run.started_at, run.ended_at)}
        </span>
        <span>
          {operations && !rounds ? `${operations} ${operations === 1 ? "operation" : "operations"}` : `${rounds} ${rounds === 1 ? "round" : "rounds"}`}
          , {tools} {tools === 1 ? "call" : "calls"}
        </span>
      </summary>
      {isOpen && <Trace run={run} />}
    </details>
  );
}

function Trace({ run }: { run: TracedRun }) {
  const [answer] = useAsked<RunTrace>(`${runsOf(chat.value?.id ?? "")}/${encodeURIComponent(run.run_id)}/diagnostics`, run.ended_at);
  if (!answer) return <p class={drawerCss.hint}>…</p>;
  if ("wrong" in answer) return <p class={drawerCss.hint}>{answer.wrong}</p>;
  const trace = answer.found;
  return (
    <div class={css.trace}>
      <p>
        <code>{run.run_id}</code>
        <br />
        {totals(trace)}
        {trace.error && <em>{trace.error}</em>}
      </p>
      {trace.rounds.map((round) => <Round key={round.round} round={round} />)}
      {(trace.operations ?? []).map((each) => <Operation key={each.step_id} operation={each} />)}
      {trace.other_tool_runs.map((each) => <ToolRun key={each.tool_call_id} run={each} />)}
      {trace.summaries.map((each) => (
        <p key={each.ended_at_ms}>
          summary of {each.covered} messages by {each.model} in {each.elapsed_ms} ms
        </p>
      ))}
      <Folded name="All of it as JSON" content={trace} />
    </div>
  );
}

function Round({ round }: { round: TraceRound }) {
  return (
    <section>
      <h3>
        Round {round.round}: {round.answered_model ?? round.model}
      </h3>
      {(round.attempts ?? []).map((each, at) => (
        <p key={at}>
          {each.provider}/{each.model}: {each.first_delta_ms == null ? "no text arrived" : `first text after ${each.first_delta_ms} ms`}
          {each.total_ms != null && `, ${each.total_ms} ms in all`}
          {each.code && <em>{` ${each.code} ${each.detail ?? ""}`}</em>}
        </p>
      ))}
      {round.usage && <p>{spent(round.usage)}</p>}
      {round.system && <Folded name="System prompt" content={round.system} />}
      {round.messages && <Folded name={`Messages (${round.messages.length})`} content={round.messages} />}
      {round.tools && round.tools.length > 0 && <Folded name={`Tools (${round.tools.length})`} content={round.tools.join("\n")} />}
      {round.params && <Folded name="Parameters" content={round.params} />}
      {round.reasoning && <Folded name="Reasoning" content={round.reasoning} />}
      {round.text && <Folded name="Answer" content={round.text} />}
      {(round.tool_runs ?? []).map((each) => <ToolRun key={each.tool_call_id} run={each} />)}
    </section>
  );
}

function Operation({ operation }: { operation: TraceOperation }) {
  return (
    <div>
      <p>
        {operation.kind} <code>{operation.name}</code> {operation.outcome} in {operation.elapsed_ms} ms
        {operation.error && <em>{` ${operation.error} ${operation.detail ?? ""}`}</em>}
      </p>
      {operation.value && <Folded name="Result" content={operation.value} />}
    </div>
  );
}

function ToolRun({ run }: { run: TraceToolRun }) {
  return (
    <div>
      <p>
        <code>{run.name}</code> {run.outcome} in {run.elapsed_ms} ms
      </p>
      <Folded name="Input and output" content={`${run.input}\n\n${run.output}`} />
    </div>
  );
}

/** Shows text as text and other values as JSON. A folded value is not drawn. */
function Folded({ name, content }: { name: string; content: unknown }) {
  const [isOpen, setOpen] = useState(false);
  return (
    <details onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>{name}</summary>
      {isOpen && <pre tabIndex={0}>{typeof content === "string" ? content : JSON.stringify(content, null, 2)}</pre>}
    </details>
  );
}
