/** Shows the data of a payload: in a special view for its type, or else in a view that suits its structure. */

import type { JsonObject } from "threadcast-client";

import { Icon } from "../ui/icon.tsx";
import { FileChange } from "./changes.tsx";
import { fileChange, fromWords, planEntries, workflowSteps, type PlanEntry, type WorkflowStep } from "./shape.ts";
import { Fields, Value } from "./value.tsx";
import css from "./calls.module.css";
import dataCss from "./payloads.module.css";

export function PayloadData({ type, data }: { type: string; data: JsonObject }) {
  if (type === "comparison" && "left" in data && "right" in data) return <Comparison data={data} />;
  const change = fileChange(type, data);
  if (change) return <FileChange {...change} />;
  const plan = planEntries(type, data);
  if (plan) return <Plan entries={plan} />;
  const steps = workflowSteps(data);
  if (steps) return <Workflow steps={steps} rest={data} />;
  const items = onlyList(data);
  return items ? <Value value={items} /> : <Fields data={data} />;
}

/** Returns the list in `{items: […]}`, the form in which tools return lists; null for other data. */
function onlyList(data: JsonObject): unknown[] | null {
  const keys = Object.keys(data);
  return keys.length === 1 && keys[0] === "items" && Array.isArray(data.items) ? data.items : null;
}

function Comparison({ data: { left, right, ...rest } }: { data: JsonObject }) {
  return (
    <>
      <div class={dataCss.comparison}>
        <div><Value value={left} depth={1} /></div>
        <div><Value value={right} depth={1} /></div>
      </div>
      {Object.keys(rest).length > 0 && <Fields data={rest} />}
    </>
  );
}

const ENTRY_WORDS = { pending: "to do", in_progress: "in progress", completed: "done" };

/** Shows an agent's plan: a list of entries, each with its status. */
function Plan({ entries }: { entries: readonly PlanEntry[] }) {
  return (
    <ol class={dataCss.plan} aria-label="Plan">
      {entries.map((entry, at) => (
        <li key={at} data-status={entry.status}>
          {entry.status === "pending" ? <i class={dataCss.toDo} /> : <Icon name={entry.status === "completed" ? "check" : "forward"} />}
          <span>
            {entry.content}
            <span class="visually-hidden">, {ENTRY_WORDS[entry.status]}</span>
            {entry.priority === "high" && <span class={css.quiet}> important</span>}
          </span>
        </li>
      ))}
    </ol>
  );
}

function Workflow({ steps, rest: { actions: _actions, edges: _edges, ...rest } }: { steps: readonly WorkflowStep[]; rest: JsonObject }) {
  return (
    <>
      {Object.keys(rest).length > 0 && <Fields data={rest} />}
      <ol class={dataCss.workflow}>
        {steps.map((step) => (
          <li key={step.name}>
            <b>{step.name}</b> <span class={css.quiet}>{step.type}</span>
            {step.from.length > 0 && (
              <span class={dataCss.workflowFrom}>after {fromWords(step)}</span>
            )}
            {Object.keys(step.parameters).length > 0 && <Fields data={step.parameters} depth={1} />}
          </li>
        ))}
      </ol>
    </>
  );
}
