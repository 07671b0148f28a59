/** The button that begins and ends time travel. The code for it is loaded at the first use. */

import { computed } from "@preact/signals";

import { chat, earlier } from "../state/session.ts";
import { fetched, lazyOf } from "../ui/lazy.tsx";

const room = () => import("./history.tsx");

export const Journey = lazyOf(() => room().then(({ Journey }) => Journey));

export const isTravelling = computed(() => earlier.value !== null);

/** Begins time travel at the present position, or ends it. */
export async function travel(): Promise<void> {
  if (earlier.peek()) return comeBack();
  const from = chat.peek();
  const loaded = await fetched(room);
  if (chat.peek() === from && !earlier.peek()) loaded?.begin();
}

export function comeBack(): void {
  earlier.value = null;
}
