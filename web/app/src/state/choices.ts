/** What new chats begin with, as this browser remembers it: read, checked against what the server offers, and said. Pure. */

import type { JsonObject } from "threadcast-client";

/** "" is the server's default. */
export interface Choices {
  readonly model: string;
  readonly mode: string;
  readonly custom_instructions: string;
}

export const DEFAULTS: Choices = { model: "", mode: "", custom_instructions: "" };

export const isChoice = (key: string): key is keyof Choices => key in DEFAULTS;

/** From what was kept, which may be anything. */
export function choicesFrom(text: string | null): Choices {
  try {
    const kept = JSON.parse(text ?? "null") as JsonObject | null;
    const said = (key: keyof Choices) => (typeof kept?.[key] === "string" ? (kept[key] as string) : "");
    return { model: said("model"), mode: said("mode"), custom_instructions: said("custom_instructions") };
  } catch {
    return DEFAULTS;
  }
}

/** As `set_params` takes it; null when there is nothing to set. */
export function patchOf(choices: Choices): Partial<Choices> | null {
  const said = Object.entries(choices).filter(([, value]) => value !== "");
  return said.length ? Object.fromEntries(said) : null;
}

/**
 * The model that is remembered and that nobody serves any more; null where it may still be. A provider whose list has
 * not come is no reason to forget its models, so one that lists nothing at all keeps them.
 */
export function goneModel(model: string, known: readonly string[], providers: readonly string[]): string | null {
  const name = model.split("?")[0] as string;
  if (!name || known.includes(name)) return null;
  const provider = name.split("/")[0] as string;
  const isWaiting = providers.includes(provider) && !known.some((each) => each.startsWith(`${provider}/`));
  return isWaiting || !name.includes("/") ? null : model;
}

/** Instructions are told by their beginning. */
const INSTRUCTIONS_SHOWN_CHARACTERS = 60;

/** What is remembered, in words: "Desk, the model demo/echo, your instructions “answer briefly”". `assistant`: what the mode is called. */
export function remembered({ model, mode, custom_instructions: said }: Choices, assistant: string): string {
  const start = [...said].slice(0, INSTRUCTIONS_SHOWN_CHARACTERS).join("").trim();
  const words = [mode && assistant, model && `the model ${model}`, said && `your instructions “${start}${start.length < said.length ? "…" : ""}”`];
  return words.filter(Boolean).join(", ");
}
