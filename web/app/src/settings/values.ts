/**
 * The present values of the open chat's parameters and the layers that they come from. The values are fetched from the
 * server when the settings open, and again after each change. The reason why a value was refused is shown beside its
 * control.
 */

import { computed, effect, signal } from "@preact/signals";
import type { Params } from "threadcast-client";

import { isChoice, patchOf } from "../state/choices.ts";
import { assistant, chosen, isBegun, remember } from "../state/chosen.ts";
import { chat, client, onEvent, state } from "../state/session.ts";
import { begin } from "../state/writing.ts";
import type { Shown } from "./params.ts";

const told = signal<Readonly<Record<string, Shown>>>({});
/** The values by key; for a chat that has not begun, the values that it will begin with. */
export const values = computed<Readonly<Record<string, Shown>>>(() => {
  if (isBegun.value) return told.value;
  return Object.fromEntries(Object.entries(patchOf(chosen.value) ?? {}).map(([key, value]) => [key, { value, layer: "browser" as const }]));
});
export const refusals = signal<Readonly<Record<string, string>>>({});

export const modeId = computed(() => assistant.value?.id ?? "");
export const modeTitle = computed(() => assistant.value?.title || modeId.value);

let asked = 0;

async function refresh(): Promise<void> {
  const own = ++asked;
  const id = chat.peek()?.id;
  // A new chat has no values of its own, and the server does not know it.
  const found = id && state.peek().position ? await client.get<Params>(`/v1/chats/${id}/params`).catch(() => null) : null;
  // An answer to an earlier request may arrive after a newer one, so it is ignored.
  if (own === asked && id === chat.peek()?.id) told.value = found?.params ?? {};
}

/** Keeps `values` up to date. Returns a function that stops the updates. */
export function keepUp(): () => void {
  const stop = effect(() => {
    void chat.value;
    void isBegun.value;
    refusals.value = {};
    void refresh();
  });
  const deafen = onEvent((event) => {
    if (event.type === "thread_updated" || event.type === "runtime_updated") void refresh();
  });
  return () => {
    stop();
    deafen();
  };
}

/**
 * Sets a parameter of this chat; null resets it to the mode's or the server's value. The browser also remembers the
 * parameters that new chats begin with; before a chat has begun, only the remembered parameters change.
 */
export async function set(key: string, value: unknown): Promise<void> {
  if (isChoice(key)) {
    remember({ [key]: key === "mode" && value === "agent" ? "" : String(value ?? "") });
    if (!isBegun.peek()) return;
  }
  try {
    await begin()?.send({ type: "set_params", patch: { [key]: value } }).acked;
    const { [key]: _, ...others } = refusals.peek();
    refusals.value = others;
  } catch (wrong) {
    refusals.value = { ...refusals.peek(), [key]: wrong instanceof Error ? wrong.message : String(wrong) };
  }
  void refresh();
}

export function refuse(key: string, why: string): void {
  refusals.value = { ...refusals.peek(), [key]: why };
}
