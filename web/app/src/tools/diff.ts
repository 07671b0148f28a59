/**
 * What differs between two objects: which fields, and in a text which lines.
 *
 * Pure. Lines are compared by their longest common run after equal beginnings and ends are set aside; texts that are too
 * long for that are shown as all taken away and all added, which is true as well.
 */

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

/** Lines compared with lines: a table of that many cells takes a few milliseconds. */
const CELLS_MAX = 1_000_000;

/** The fields of both, those of `after` first in its order. */
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

/** Text in which equal values are equal: keys in order. */
export function canonical(value: unknown): string {
  return JSON.stringify(value, (_, inner: unknown) =>
    typeof inner === "object" && inner !== null && !Array.isArray(inner)
      ? Object.fromEntries(Object.entries(inner).sort(([a], [b]) => (a < b ? -1 : 1)))
      : inner,
  ) ?? "null";
}

/** A value as text to compare: text as it is, everything else as JSON in lines. */
export function comparable(value: unknown): string {
  return typeof value === "string" ? value : (JSON.stringify(value, null, 2) ?? "");
}

export function diffLines(before: string, after: string): Line[] {
  const a = before === "" ? [] : before.split("\n");
  const b = after === "" ? [] : after.split("\n");
  let start = 0;
  while (start < a.length && start < b.length && a[start] === b[start]) start += 1;
  let end = 0;
  while (end < a.length - start && end < b.length - start && a.at(-1 - end) === b.at(-1 - end)) end += 1;
  const same = (text: string): Line => ({ kind: "same", text });
  return [
    ...a.slice(0, start).map(same),
    ...between(a.slice(start, a.length - end), b.slice(start, b.length - end)),
    ...a.slice(a.length - end).map(same),
  ];
}

function between(a: readonly string[], b: readonly string[]): Line[] {
  const removed = (text: string): Line => ({ kind: "removed", text });
  const added = (text: string): Line => ({ kind: "added", text });
  if (!a.length || !b.length || a.length * b.length > CELLS_MAX) return [...a.map(removed), ...b.map(added)];
  const width = b.length + 1;
  // longest[i * width + j]: lines that a from i on and b from j on have in common, in order.
  const longest = new Uint32Array((a.length + 1) * width);
  for (let i = a.length - 1; i >= 0; i -= 1) {
    for (let j = b.length - 1; j >= 0; j -= 1) {
      const here = i * width + j;
      longest[here] = a[i] === b[j] ? longest[here + width + 1]! + 1 : Math.max(longest[here + width]!, longest[here + 1]!);
    }
  }
  const lines: Line[] = [];
  let i = 0;
  let j = 0;
  while (i < a.length && j < b.length) {
    const here = i * width + j;
    if (a[i] === b[j]) {
      lines.push({ kind: "same", text: a[i]! });
      i += 1;
      j += 1;
    } else if (longest[here + width]! >= longest[here + 1]!) lines.push(removed(a[i++]!));
    else lines.push(added(b[j++]!));
  }
  return [...lines, ...a.slice(i).map(removed), ...b.slice(j).map(added)];
}

/** Of long stretches that are the same only the `around` lines beside a change; null stands for what is left out. */
export function folded(lines: readonly Line[], around = 3): (Line | null)[] {
  const shown = lines.map((_, at) => lines.slice(Math.max(0, at - around), at + around + 1).some((line) => line.kind !== "same"));
  const out: (Line | null)[] = [];
  lines.forEach((line, at) => {
    if (shown[at]) out.push(line);
    else if (out.at(-1) !== null) out.push(null);
  });
  return out;
}
