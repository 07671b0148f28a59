/** The remembered choices that new chats begin with: reads them, checks them against the server's offer, describes them. Pure. */

import type { JsonObject } from "threadcast-client";

/** "" is the server's default. */
export interface Choices {
  readonly model: string;
  readonly mode: string;
  readonly custom_instructions: string;
}

export const DEFAULTS: Choices = { model: "", mode: "", custom_instructions: "" };

export const isChoice = (key: string): key is keyof Choices => key in DEFAULTS;

/** Reads stored choices. The stored value may have any form. */
export function choicesFrom(text: string | null): Choices {
  try {
    const kept = JSON.parse(text ?? "null") as JsonObject | null;
    const said = (key: keyof Choices) => (typeof kept?.[key] === "string" ? (kept[key] as string) : "");
    return { model: said("model"), mode: said("mode"), custom_instructions: said("custom_instructions") };
  } catch {
    return DEFAULTS;
  }
}

/** Returns the choices as a patch for `set_params`; null if there is nothing to set. */
export function patchOf(choices: Choices): Partial<Choices> | null {
  const said = Object.entries(choices).filter(([, value]) => value !== "");
  return said.length ? Object.fromEntries(said) : null;
}

/**
 * Returns the remembered model if it is no longer served; null if it may still be served. A provider's list may not
 * have arrived yet, so all models of a provider that lists no models count as served.
 */
export function goneModel(model: string, known: readonly string[], providers: readonly string[]): string | null {
  const name = model.split("?")[0] as string;
  if (!name || known.includes(name)) return null;
  const provider = name.split("/")[0] as string;
  const isWaiting = providers.includes(provider) && !known.some((each) => each.startsWith(`${provider}/`));
  return isWaiting || !name.includes("/") ? null : model;
}

/** Instructions are described by their first characters. */
const INSTRUCTIONS_SHOWN_CHARACTERS = 60;

/**
 * Describes the choices: "Desk, the model demo/echo, your instructions “answer briefly”". `assistant` is the mode's
 * title.
 */
export function remembered({ model, mode, custom_instructions: said }: Choices, assistant: string): string {
  const start = [...said].slice(0, INSTRUCTIONS_SHOWN_CHARACTERS).join("").trim();
  const words = [mode && assistant, model && `the model ${model}`, said && `your instructions “${start}${start.length < said.length ? "…" : ""}”`];
  return words.filter(Boolean).join(", ");
}
