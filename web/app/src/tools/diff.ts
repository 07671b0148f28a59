/**
 * Compares two objects: finds the fields that differ and, in texts, the lines that differ. The module is pure, except
 * for a time limit.
 */

import { diffArrays } from "diff/lib/diff/array.js";
import type { JsonObject } from "threadcast-client";

export interface Line {
  readonly kind: "same" | "added" | "removed";
  readonly text: string;
}

export interface Change {
  readonly field: string;
  readonly kind: "same" | "added" | "removed" | "changed";
  readonly before?: unknown;
  readonly after?: unknown;
}

/**
 * The maximum number of changed lines, which is more than people read one by one. A comparison of two texts of 10,000
 * lines that differ in more lines took usually 0.4 s and at worst 2 s, so the time is limited separately.
 */
const EDITS_MAX = 2_000;
const TIME_MAX_MS = 200;

/**
 * Compares the fields of both objects: first the fields of `after` in their order, then the fields that only `before`
 * has.
 */
export function changesOf(before: JsonObject | null, after: JsonObject): Change[] {
  if (!before) return Object.entries(after).map(([field, value]) => ({ field, kind: "same", after: value }));
  const changes: Change[] = Object.entries(after).map(([field, value]) => {
    if (!(field in before)) return { field, kind: "added", after: value };
    const isSame = canonical(before[field]) === canonical(value);
    return { field, kind: isSame ? "same" : "changed", before: before[field], after: value };
  });
  for (const [field, value] of Object.entries(before)) {
    if (!(field in after)) changes.push({ field, kind: "removed", before: value });
  }
  return changes;
}

/** Writes a value as JSON with sorted keys, so that equal values give equal texts. */
export function canonical(value: unknown): string {
  return JSON.stringify(value, (_, inner: unknown) =>
    typeof inner === "object" && inner !== null && !Array.isArray(inner)
      ? Object.fromEntries(Object.entries(inner).sort(([a], [b]) => (a < b ? -1 : 1)))
      : inner,
  ) ?? "null";
}

/** Writes a value as text for a comparison by lines: strings unchanged, everything else as indented JSON. */
export function comparable(value: unknown): string {
  return typeof value === "string" ? value : (JSON.stringify(value, null, 2) ?? "");
}

/** Returns the lines of both texts in order. Texts that differ too much are shown as all removed and all added. */
export function diffLines(before: string, after: string): Line[] {
  const [a, b] = [linesOf(before), linesOf(after)];
  const parts = diffArrays(a, b, { maxEditLength: EDITS_MAX, timeout: TIME_MAX_MS }) ?? [{ value: a, removed: true }, { value: b, added: true }];
  return parts.flatMap(({ value, added, removed }) => value.map((text): Line => ({ kind: added ? "added" : removed ? "removed" : "same", text })));
}

function linesOf(text: string): string[] {
  return text === "" ? [] : text.split("\n");
}

/** Keeps only `around` unchanged lines before and after each change; null stands for the lines left out. */
export function folded(lines: readonly Line[], around = 3): (Line | null)[] {
  const shown = lines.map((_, at) => lines.slice(Math.max(0, at - around), at + around + 1).some((line) => line.kind !== "same"));
  const out: (Line | null)[] = [];
  lines.forEach((line, at) => {
    if (shown[at]) out.push(line);
    else if (out.at(-1) !== null) out.push(null);
  });
  return out;
}
