/** Words for values: one line of a call's arguments, names of fields, JSON. Pure. */

import type { JsonObject } from "threadcast-client";

/** Of a line that stands beside a tool's name: what fits a phone twice. */
const LINE_MAX_CHARACTERS = 120;
/** Of one value in it, so that the second is seen as well. */
const VALUE_MAX_CHARACTERS = 60;

/** One line that tells which call it is: `label` if the tool has one, else the arguments, the first ones first. */
export function summaryLine(input: JsonObject | string, label?: string | null): string {
  if (label) return clip(oneLine(label), LINE_MAX_CHARACTERS);
  if (typeof input === "string") return clip(oneLine(input), LINE_MAX_CHARACTERS);
  const entries = Object.entries(input).filter(([, value]) => value !== null && value !== "");
  if (entries.length === 1) return clip(shortValue(entries[0]![1]), LINE_MAX_CHARACTERS);
  return clip(entries.map(([key, value]) => `${key}: ${clip(shortValue(value), VALUE_MAX_CHARACTERS)}`).join(", "), LINE_MAX_CHARACTERS);
}

function shortValue(value: unknown): string {
  if (typeof value === "string") return oneLine(value);
  if (Array.isArray(value) && value.every((item) => typeof item !== "object")) return value.join(", ");
  return Array.isArray(value) ? counted(value.length, "item") : JSON.stringify(value);
}

/** No more of it is looked at than can be shown: arguments may be long, and grow with every frame. */
function oneLine(text: string): string {
  return text.slice(0, 4 * LINE_MAX_CHARACTERS).replace(/\s+/g, " ").trim();
}

/** Cut at `most` characters, with an ellipsis; never inside a surrogate pair. */
export function clip(text: string, most: number): string {
  if (text.length <= most) return text;
  return text.slice(0, most - 1).replace(/[\ud800-\udbff]$/, "") + "…";
}

export function counted(count: number, noun: string): string {
  return `${count} ${noun}${count === 1 ? "" : "s"}`;
}

/** A field's name as people write it: `rows_count` and `rowsCount` are `Rows count`. */
export function fieldName(key: string): string {
  const words = key.replace(/([a-z0-9])([A-Z])/g, "$1 $2").replace(/[_-]+/g, " ").trim();
  const plain = words === words.toUpperCase() ? words : words.toLowerCase();
  return plain === "id" ? "ID" : plain.charAt(0).toUpperCase() + plain.slice(1);
}

/** Text that is JSON, written to be read; null when it is none or has nothing to unfold. */
export function prettyJson(text: string): string | null {
  const first = text.trimStart()[0];
  if (first !== "{" && first !== "[") return null;
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return null;
  }
}

/** JSON that is still being written, broken into lines where the whole will be. Never fails. */
export function growingJson(text: string): string {
  let out = "";
  let depth = 0;
  let isText = false;
  for (let at = 0; at < text.length; at += 1) {
    const letter = text[at]!;
    if (isText) {
      out += letter;
      if (letter === "\\" && at + 1 < text.length) out += text[++at];
      else if (letter === '"') isText = false;
    } else if (letter === '"') {
      isText = true;
      out += letter;
    } else if (letter === "{" || letter === "[") {
      const close = letter === "{" ? "}" : "]";
      const next = /^\s*(\S)/.exec(text.slice(at + 1, at + 64))?.[1];
      if (next === close) {
        at = text.indexOf(close, at);
        out += letter + close;
      } else out += letter + lineAt((depth += 1));
    } else if (letter === "}" || letter === "]") out += lineAt((depth = Math.max(0, depth - 1))) + letter;
    else if (letter === ",") out += letter + lineAt(depth);
    else if (letter === ":") out += ": ";
    else if (!/\s/.test(letter)) out += letter;
  }
  return out;
}

function lineAt(depth: number): string {
  return "\n" + "  ".repeat(depth);
}
