/**
 * What new chats begin with: the model, the assistant and the instructions that this person chose last in this browser,
 * in any tab. A choice that the server no longer offers is dropped, and a notice says so.
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

/** Called inside of an effect, which must not depend on the notices. */
const say = (text: string) => untracked(() => notify(text));

effect(() => {
  const { model, mode } = chosen.value;
  if (!caps.value || !modes.value.length) return;
  const providers = Object.keys(caps.value.samplers);
  if (goneModel(model, models.value.map(({ id }) => id), providers)) {
    remember({ model: "" });
    say(`The model ${model} is not offered any more. New chats begin with the default model.`);
  }
  if (mode && !modes.value.some(({ id }) => id === mode)) {
    remember({ mode: "" });
    say(`The assistant “${mode}” is not offered any more. New chats begin with the default assistant.`);
  }
});

/** Whether the open chat has begun. One that has not begins with what was chosen last. */
export const isBegun = computed(() => state.value.position > 0);

/** The assistant of the open chat, or of the one that is about to begin; undefined until the server has said which there are. */
export const assistant = computed(() => {
  const id = modeOf(isBegun.value ? state.value.thread.mode : chosen.value.mode);
  return modes.value.find((mode) => mode.id === id);
});

/** The assistant's name; "Assistant" if the operator has configured none. */
export const assistantName = computed(() => {
  const { id = "agent", title = "" } = assistant.value ?? {};
  return !title || (id === "agent" && ["agent", "Agent"].includes(title)) ? "Assistant" : title;
});
