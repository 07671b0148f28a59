/** Compares two definitions of a tool, whose texts may be written to mislead. Pure. */

import type { JsonObject, ToolDefinition } from "threadcast-client";

import { canonical, changesOf, type Change } from "./diff.ts";

/** Returns the fields to show: the fields that differ, or all fields if there is no earlier definition. */
export function differences(before: ToolDefinition | null, now: ToolDefinition): Change[] {
  const fields = shown(now);
  if (!before) return Object.entries(fields).map(([field, value]) => ({ field, kind: "added", after: value }));
  return changesOf(shown(before), fields).filter((change) => change.kind !== "same");
}

/** Sorts the keys, because their order means nothing, and makes marks visible that would hide or reorder text. */
function shown({ description, input_schema }: ToolDefinition): JsonObject {
  const schema = JSON.stringify(JSON.parse(canonical(input_schema)), null, 2);
  return { description: unmasked(description), arguments: unmasked(schema) };
}

/** Replaces control and format characters, such as marks of writing direction and invisible letters, by their code points. */
function unmasked(text: string): string {
  return text.replace(/[^\P{C}\n\t]/gu, (mark) => `⟨U+${(mark.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, "0")}⟩`);
}
