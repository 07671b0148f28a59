/**
 * What this server can do: its models, its profiles ("modes") and its limits. Asked when the page begins, and if nobody
 * answered then, when the server is heard of again. */

import { batch, computed, effect, signal } from "@preact/signals";
import type { Capabilities, ChatMode, ChatModes } from "threadcast-client";

import { ask } from "./actions.ts";
import { scope } from "./handed.ts";
import { chats } from "./session.ts";

export const caps = signal<Capabilities | null>(null);
export const modes = signal<readonly ChatMode[]>([]);

export const models = computed(() => Object.values(caps.value?.chat_models ?? {}).filter((model) => model.enabled));

/** The mode that holds for a chat: one that nobody has set a mode for has the first. */
export function modeOf(mode: string | undefined): string {
  return mode && modes.value.some(({ id }) => id === mode) ? mode : (modes.value[0]?.id ?? "");
}

/** A limit by the server's name for it (PROTOCOL §18); Infinity until it is known, for the server checks again. */
export function limit(name: string): number {
  return caps.peek()?.limits[name] ?? Infinity;
}

/** Providers whose answers no model writes: the demonstration, and scripts. */
export function isScripted(model: string): boolean {
  const provider = model.split("/")[0] as string;
  return caps.value?.scripted_providers.includes(provider) ?? provider === "demo";
}

/** The scope that `modes` are shown in; null until they are known. */
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
  if (found && offered && here !== scope.peek()) void learn(); // the scope has changed meanwhile
}

void learn();
effect(() => {
  void scope.value;
  if (chats.value.isLive) void learn();
});
