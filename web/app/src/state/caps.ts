/** What this server can do: its models, its profiles ("modes") and its limits. Asked when the page begins, and if nobody
 * answered then, when the server is heard of again. */

import { computed, effect, signal } from "@preact/signals";
import type { Capabilities, ChatMode, ChatModes } from "threadcast-client";

import { ask } from "./actions.ts";
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

let isAsking = false;

async function learn(): Promise<void> {
  if (isAsking || caps.peek()) return;
  isAsking = true;
  const [found, offered] = await Promise.all([ask<Capabilities>("GET", "/v1/caps"), ask<ChatModes>("GET", "/v1/chat-modes")]);
  isAsking = false;
  modes.value = offered?.modes ?? [];
  caps.value = found;
}

void learn();
effect(() => {
  if (chats.value.isLive) void learn();
});
