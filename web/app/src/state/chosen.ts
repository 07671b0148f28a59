/**
 * The choices with which new chats begin: the model, the assistant and the instructions that this person last chose in
 * this browser, in any tab. A choice that the server no longer offers is dropped, and a notice says so.
 */

import { computed, effect, signal, untracked } from "@preact/signals";

import { caps, modeOf, models, modes } from "./caps.ts";
import { choicesFrom, DEFAULTS, goneModel, patchOf, type Choices } from "./choices.ts";
import { notify, state } from "./session.ts";
import { person } from "./storage.ts";

const KEY = "threadcast.chosen";

export const chosen = signal<Choices>(choicesFrom(person.getItem(KEY)));
export const isDefault = computed(() => patchOf(chosen.value) === null);

addEventListener("storage", (event) => {
  if (event.key === null || person.isNameOf(KEY, event.key)) chosen.value = choicesFrom(person.getItem(KEY));
});

export function remember(choice: Partial<Choices>): void {
  chosen.value = { ...chosen.peek(), ...choice };
  if (isDefault.peek()) person.removeItem(KEY);
  else person.setItem(KEY, JSON.stringify(chosen.peek()));
}

export function backToDefaults(): void {
  remember(DEFAULTS);
}

/** This code runs within an effect, and the effect must not depend on the notices. */
const say = (text: string) => untracked(() => notify(text));

effect(() => {
  const { model, mode } = chosen.value;
  if (!caps.value || !modes.value.length) return;
  const providers = Object.keys(caps.value.samplers);
  if (goneModel(model, models.value.map(({ id }) => id), providers)) {
    remember({ model: "" });
    say(`The model ${model} is no longer available. New chats begin with the default model.`);
  }
  if (mode && !modes.value.some(({ id }) => id === mode)) {
    remember({ mode: "" });
    say(`The assistant “${mode}” is no longer available. New chats begin with the default assistant.`);
  }
});

/** Whether the open chat has begun. A new chat begins with the remembered choices. */
export const isBegun = computed(() => state.value.position > 0);

/** The assistant of the open or new chat; undefined until the server's list is known. */
export const assistant = computed(() => {
  const id = modeOf(isBegun.value ? state.value.thread.mode : chosen.value.mode);
  return modes.value.find((mode) => mode.id === id);
});

/** The assistant's name; "Assistant" if the operator has configured no name. */
export const assistantName = computed(() => {
  const { id = "agent", title = "" } = assistant.value ?? {};
  return !title || (id === "agent" && ["agent", "Agent"].includes(title)) ? "Assistant" : title;
});
