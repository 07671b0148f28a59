/** Decides how to show data without a special view: as a table, as fields, as a list, or as text. Pure. */

import type { JsonObject } from "threadcast-client";

import { isObject } from "./calls.ts";

export interface Table {
  readonly columns: readonly string[];
  readonly rows: readonly JsonObject[];
}

/** More columns do not fit, so such rows are shown one below the other. */
const COLUMNS_MAX = 8;

/** Returns a list of objects with mostly the same simple fields as a table; null for other data. */
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

/** Whether a list fits into one line. */
export function isShortList(value: unknown): value is readonly (string | number | boolean | null)[] {
  return Array.isArray(value) && value.length <= 12 && value.every((item) => isScalar(item) && String(item).length <= 40);
}

export interface PlanEntry {
  readonly content: string;
  readonly status: "pending" | "in_progress" | "completed";
  readonly priority: string;
}

/** Returns the entries of a plan, `{entries: [{content, status, priority}]}`; null for other data. */
export function planEntries(type: string, { entries }: JsonObject): PlanEntry[] | null {
  if (type !== "plan" || !Array.isArray(entries) || !entries.length) return null;
  if (!entries.every((entry) => isObject(entry) && typeof entry.content === "string")) return null;
  return (entries as JsonObject[]).map(({ content, status, priority }) => ({
    content: String(content),
    status: status === "completed" || status === "in_progress" ? status : "pending",
    priority: String(priority ?? ""),
  }));
}

/** Returns the change of a file, `{path, before, after}`, whose `before` is null for a new file; null for other data. */
export function fileChange(type: string, { path, before, after }: JsonObject): { path: string; before: string; after: string } | null {
  if (type !== "diff" || typeof after !== "string" || (typeof before !== "string" && before != null)) return null;
  return { path: typeof path === "string" ? path : "", before: before ?? "", after };
}

export interface WorkflowStep {
  readonly name: string;
  readonly type: string;
  readonly parameters: JsonObject;
  /** The previous actions, each with the exit that leads here. */
  readonly from: readonly { readonly source: string; readonly port: string | null }[];
}

/**
 * Returns the steps of data that looks like a workflow; null for other data. A workflow is a list of actions with a
 * name and a type, connected by edges (`{source?, target, port?}`) or by `after` (`Name` or `Name:port`).
 */
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

/** The name that `threadcast.tools.workflow` gives to the only exit of an action. */
const ONLY_PORT = "out";

/** Describes the edges that lead to a step; "" for the first step. */
export function fromWords({ from }: WorkflowStep): string {
  return from.map(({ source, port }) => (port && port !== ONLY_PORT ? `${source} → ${port}` : source)).join(", ");
}

/** Returns an object in a form that people can compare: a workflow with one line for each step. */
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
