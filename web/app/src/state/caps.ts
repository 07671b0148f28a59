/** What this server can do: its models, its profiles ("modes") and its limits. Asked once, when the page begins. */

import { computed, signal } from "@preact/signals";
import type { Capabilities, ChatMode, ChatModes } from "threadcast-client";

import { ask } from "./actions.ts";

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

void ask<Capabilities>("GET", "/v1/caps").then((found) => {
  caps.value = found;
});
void ask<ChatModes>("GET", "/v1/chat-modes").then((found) => {
  modes.value = found?.modes ?? [];
});
