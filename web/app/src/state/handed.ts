/** The context that the embedding page has sent, and the scope that results from the context and the address. */

import { computed, signal } from "@preact/signals";
import type { JsonObject } from "threadcast-client";

import { scopeOf } from "./contexts.ts";
import { route } from "./route.ts";

/** The last context that the embedding page sent; null for none. */
export const handed = signal<JsonObject | null>(null);

/** False once the person has removed that context. */
export const isShared = signal(true);

/** The scope of the next message, such as "reports/articles"; "" for no scope. */
export const scope = computed(() => (isShared.value && handed.value ? scopeOf(handed.value.scope) : "") || route.value.scope);
