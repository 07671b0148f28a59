/** Checks a JSON object that a person has edited. Pure. */

import type { JsonObject } from "threadcast-client";

import { isObject } from "./calls.ts";
import { canonical } from "./diff.ts";

export type Read = { readonly value: JsonObject; readonly isChanged: boolean } | { readonly error: string };

/** Returns the object and whether it differs from `original`; or a sentence that says what is wrong in which line. */
export function readEdited(text: string, original: JsonObject): Read {
  try {
    const value: unknown = JSON.parse(text);
    if (!isObject(value)) return { error: "The arguments must be a JSON object: { … }." };
    return { value, isChanged: canonical(value) !== canonical(original) };
  } catch (wrong) {
    return { error: sentence(wrong instanceof Error ? wrong.message : String(wrong), text) };
  }
}

/**
 * Finds the line of an error. Browsers describe the place in different words, and the newest browsers quote the text
 * instead.
 */
function sentence(said: string, text: string): string {
  const at = /position (\d+)/.exec(said)?.[1] ?? quotedAt(said, text);
  const line = /line (\d+)/.exec(said)?.[1] ?? (at === null ? null : text.slice(0, Number(at)).split("\n").length);
  const what = said.replace(/^JSON\.parse: /, "").replace(/(?: in JSON)? at (?:position|line).*$| \(line .*$|, (?:\.\.\.)?".*$/s, "");
  return `This is not JSON${line === null ? "" : ` (line ${line})`}: ${what.replace(/\.$/, "")}.`;
}

/** Chromium quotes ten characters on each side of the place: `Unexpected token '}', ..."  "b": }" is not valid JSON`. */
function quotedAt(said: string, text: string): number | null {
  const [, before, quoted] = /, (\.\.\.)?"(.*?)"(?:\.\.\.)? is not valid JSON$/s.exec(said) ?? [];
  const start = quoted === undefined ? -1 : text.indexOf(quoted);
  return start < 0 ? null : before ? start + Math.min(10, quoted!.length) : 0;
}
