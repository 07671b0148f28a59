/** What the page around this one has handed over, and the place that follows from it and from the address. */

import { computed, signal } from "@preact/signals";
import type { JsonObject } from "threadcast-client";

import { scopeOf } from "./contexts.ts";
import { route } from "./route.ts";

/** What the page around this one handed over last; null for nothing. */
export const handed = signal<JsonObject | null>(null);

/** False once the person has taken away what was handed over. */
export const isShared = signal(true);

/** The scope that the next message is written in, "reports/articles"; "" for none. */
export const scope = computed(() => (isShared.value && handed.value ? scopeOf(handed.value.scope) : "") || route.value.scope);
