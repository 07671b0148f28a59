/** Formats values: one line for a call's arguments, names of fields, and JSON. Pure. */

import type { JsonObject } from "threadcast-client";

/** The longest line beside a tool's name: twice the width of a phone. */
const LINE_MAX_CHARACTERS = 120;
/** The longest value in that line, so that a second value is visible too. */
const VALUE_MAX_CHARACTERS = 60;

/** Returns one line that describes a call: the tool's `label`, or else the call's first arguments. */
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

/**
 * Joins the lines of a text. The function reads only as much text as can be shown, because arguments may be long and
 * grow with every frame.
 */
function oneLine(text: string): string {
  return text.slice(0, 4 * LINE_MAX_CHARACTERS).replace(/\s+/g, " ").trim();
}

/** Cuts a text to `most` characters with an ellipsis, and never within a surrogate pair. */
export function clip(text: string, most: number): string {
  if (text.length <= most) return text;
  return text.slice(0, most - 1).replace(/[\ud800-\udbff]$/, "") + "…";
}

export function counted(count: number, noun: string): string {
  return `${count} ${noun}${count === 1 ? "" : "s"}`;
}

/** Returns a field's name in words: `rows_count` and `rowsCount` become `Rows count`. */
export function fieldName(key: string): string {
  const words = key.replace(/([a-z0-9])([A-Z])/g, "$1 $2").replace(/[_-]+/g, " ").trim();
  const plain = words === words.toUpperCase() ? words : words.toLowerCase();
  return plain === "id" ? "ID" : plain.charAt(0).toUpperCase() + plain.slice(1);
}

/** Returns a JSON text with line breaks; null if the text is not a JSON object or list. */
export function prettyJson(text: string): string | null {
  const first = text.trimStart()[0];
  if (first !== "{" && first !== "[") return null;
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return null;
  }
}

/** Returns unfinished JSON with the line breaks that the complete JSON will have. Never fails. */
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
