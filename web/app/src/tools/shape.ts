/** How data is best shown that nobody wrote a view for: as a table, as fields, as a list, as text. Pure. */

import type { JsonObject } from "threadcast-client";

import { isObject } from "./calls.ts";

export interface Table {
  readonly columns: readonly string[];
  readonly rows: readonly JsonObject[];
}

/** More do not fit beside each other; such rows are shown one below the other. */
const COLUMNS_MAX = 8;

/** A list of objects whose fields are mostly the same and plain; null for any other. */
export function tableOf(items: readonly unknown[]): Table | null {
  if (items.length < 1 || !items.every(isObject)) return null;
  const rows = items as readonly JsonObject[];
  const columns = [...new Set(rows.flatMap((row) => Object.keys(row)))];
  if (columns.length < 1 || columns.length > COLUMNS_MAX) return null;
  const isPlain = rows.every((row) => Object.values(row).every((value) => isScalar(value) || isShortList(value)));
  return isPlain ? { columns, rows } : null;
}

export function isScalar(value: unknown): value is string | number | boolean | null {
  return value === null || typeof value !== "object";
}

/** A list that can stand in one line. */
export function isShortList(value: unknown): value is readonly (string | number | boolean | null)[] {
  return Array.isArray(value) && value.length <= 12 && value.every((item) => isScalar(item) && String(item).length <= 40);
}

export interface WorkflowStep {
  readonly name: string;
  readonly type: string;
  readonly parameters: JsonObject;
  /** What leads here: the action before, and by which of its ways out. */
  readonly from: readonly { readonly source: string; readonly port: string | null }[];
}

/** A workflow by its looks: actions that have a name and a type, and perhaps edges between them (`{source?, target,
 * port?}`), or `after`, `Name` or `Name:port`. */
export function workflowSteps(data: JsonObject): WorkflowStep[] | null {
  const { actions, edges } = data;
  if (!Array.isArray(actions) || !actions.length) return null;
  if (!actions.every((action) => isObject(action) && typeof action.name === "string" && typeof action.type === "string")) return null;
  const drawn = Array.isArray(edges) ? edges.filter(isObject) : null;
  return (actions as JsonObject[]).map((action) => ({
    name: String(action.name),
    type: String(action.type),
    parameters: isObject(action.parameters) ? action.parameters : {},
    from: drawn
      ? drawn
          .filter((edge) => edge.target === action.name && typeof edge.source === "string" && edge.source)
          .map((edge) => ({ source: String(edge.source), port: typeof edge.port === "string" && edge.port ? edge.port : null }))
      : after(action.after),
  }));
}

/** What `server.tools.workflow` calls the way out of an action that has no other. */
const ONLY_PORT = "out";

/** What leads to a step, in words; nothing for the first one. */
export function fromWords({ from }: WorkflowStep): string {
  return from.map(({ source, port }) => (port && port !== ONLY_PORT ? `${source} → ${port}` : source)).join(", ");
}

/** An object as people compare it: of a workflow, a line for each step in place of its actions and edges. */
export function readable(data: JsonObject): JsonObject {
  const steps = workflowSteps(data);
  if (!steps) return data;
  const { actions: _actions, edges: _edges, ...rest } = data;
  const line = (step: WorkflowStep) => {
    const told = Object.keys(step.parameters).length ? ` ${JSON.stringify(step.parameters)}` : "";
    return `${step.name} (${step.type})${step.from.length ? ` after ${fromWords(step)}` : ""}${told}`;
  };
  return { ...rest, steps: steps.map(line).join("\n") };
}

function after(written: unknown): WorkflowStep["from"] {
  if (typeof written !== "string" || !written) return [];
  const colon = written.lastIndexOf(":");
  return [colon < 0 ? { source: written, port: null } : { source: written.slice(0, colon), port: written.slice(colon + 1) }];
}
