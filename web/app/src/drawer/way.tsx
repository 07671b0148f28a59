/** The way into the past and back. What a journey takes is fetched with the first one. */

import { computed } from "@preact/signals";

import { chat, past } from "../state/session.ts";
import { fetched, lazyOf } from "../ui/lazy.tsx";

const room = () => import("./past.tsx");

export const Journey = lazyOf(() => room().then(({ Journey }) => Journey));

export const isTravelling = computed(() => past.value !== null);

/** Begin where the chat stands; again: come back. */
export async function travel(): Promise<void> {
  if (past.peek()) return comeBack();
  const from = chat.peek();
  const loaded = await fetched(room);
  if (chat.peek() === from && !past.peek()) loaded?.begin();
}

export function comeBack(): void {
  past.value = null;
}
