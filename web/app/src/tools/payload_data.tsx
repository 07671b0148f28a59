/** Shows the data of a payload: in a special view for its type, or else by its form. */

import type { JsonObject } from "threadcast-client";

import { fromWords, workflowSteps, type WorkflowStep } from "./shape.ts";
import { Fields, Value } from "./value.tsx";
import css from "./calls.module.css";
import dataCss from "./payloads.module.css";

export function PayloadData({ type, data }: { type: string; data: JsonObject }) {
  if (type === "comparison" && "left" in data && "right" in data) return <Comparison data={data} />;
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
