/**
 * Filters and describes the lines of the event log. The module is pure, except that the size of an event is measured
 * once, when the event is shown.
 */

import type { Line, Log } from "./log.ts";

/**
 * The filter for the shown lines: all lines, all lines except pieces of text, or the events of one type. Notes about
 * the connection are always shown.
 */
export type Filter = "all" | "no_deltas" | (string & {});

export function isWanted(line: Line, filter: Filter): boolean {
  if (filter === "all" || line.kind === "note") return true;
  return filter === "no_deltas" ? line.type !== "stream_delta" : line.type === filter;
}

/** Returns the types of the recorded events, the most frequent first. */
export function typesOf(log: Log): [type: string, count: number][] {
  const counts = new Map<string, number>();
  for (const { kind, type } of log.blocks.flat()) if (kind === "event") counts.set(type, (counts.get(type) ?? 0) + 1);
  return [...counts].sort((a, b) => b[1] - a[1]);
}

const sizes = new WeakMap<object, number>();
const utf8 = new TextEncoder();

/** Returns the size of an event's JSON in UTF-8, in bytes. */
export function bytesOf(body: object): number {
  const known = sizes.get(body);
  if (known !== undefined) return known;
  const size = utf8.encode(JSON.stringify(body)).length;
  sizes.set(body, size);
  return size;
}

/** Returns text such as "09:41:07.123". */
export function clock(ms: number): string {
  const then = new Date(ms);
  const two = (number: number) => String(number).padStart(2, "0");
  return `${two(then.getHours())}:${two(then.getMinutes())}:${two(then.getSeconds())}.${String(then.getMilliseconds()).padStart(3, "0")}`;
}

/** Describes an event in one line by its simple fields, whose values are shortened. */
export function summary(body: object): string {
  const event = body as { [key: string]: unknown };
  if (event.type === "stream_delta" && Array.isArray(event.ops)) return event.ops.map(ofOperation).join(" ");
  if (event.type === "snapshot") return `${Array.isArray(event.messages) ? event.messages.length : 0} messages`;
  const said = Object.entries(event).filter(([key, value]) => !UNTOLD.has(key) && isSimple(value));
  return said.map(([key, value]) => `${key}=${shortened(String(value), 40)}`).join(" ");
}

const UNTOLD: ReadonlySet<string> = new Set(["type", "chat_id", "seq"]);

function isSimple(value: unknown): boolean {
  return value !== null && value !== "" && value !== false && ["string", "number", "boolean"].includes(typeof value);
}

function ofOperation(operation: { op?: string; text?: string }): string {
  const text = typeof operation.text === "string" ? ` ${JSON.stringify(shortened(operation.text, 60))}` : "";
  return `${operation.op ?? "?"}${text}`;
}

function shortened(text: string, most: number): string {
  return text.length > most ? `${text.slice(0, most)}…` : text;
}
