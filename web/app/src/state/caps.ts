/**
 * The server's capabilities: its models, its profiles ("modes") and its limits. The capabilities are fetched when the
 * page starts, and again after a reconnect if the first request failed.
 */

import { batch, computed, effect, signal } from "@preact/signals";
import type { Capabilities, ChatMode, ChatModes } from "threadcast-client";

import { ask } from "./actions.ts";
import { scope } from "./handed.ts";
import { chats } from "./session.ts";

export const caps = signal<Capabilities | null>(null);
export const modes = signal<readonly ChatMode[]>([]);

export const models = computed(() => Object.values(caps.value?.chat_models ?? {}).filter((model) => model.enabled));

/** Returns the mode of a chat; a chat without a set mode has the first mode. */
export function modeOf(mode: string | undefined): string {
  return mode && modes.value.some(({ id }) => id === mode) ? mode : (modes.value[0]?.id ?? "");
}

/**
 * Returns a limit by the server's name for it (PROTOCOL §18). Returns Infinity until the limit is known, because the
 * server checks the limit again.
 */
export function limit(name: string): number {
  return caps.peek()?.limits[name] ?? Infinity;
}

/** Whether a provider answers without a model, as the demonstration and scripts do. */
export function isScripted(model: string): boolean {
  const provider = model.split("/")[0] as string;
  return caps.value?.scripted_providers.includes(provider) ?? provider === "demo";
}

/** The scope for which `modes` were fetched; null until then. */
let shownIn: string | null = null;
let isAsking = false;

async function learn(): Promise<void> {
  const here = scope.peek();
  if (isAsking || (caps.peek() && shownIn === here)) return;
  isAsking = true;
  const offers = here ? ask<ChatModes>("GET", `/v1/chat-modes?scope=${encodeURIComponent(here)}`) : ask<ChatModes>("GET", "/v1/chat-modes");
  const [found, offered] = await Promise.all([caps.peek() ?? ask<Capabilities>("GET", "/v1/caps"), offers]);
  isAsking = false;
  batch(() => {
    modes.value = offered?.modes ?? modes.peek();
    caps.value = found;
  });
  if (offered) shownIn = here;
  if (found && offered && here !== scope.peek()) void learn(); // the scope has changed since the request
}

void learn();
effect(() => {
  void scope.value;
  if (chats.value.isLive) void learn();
});
