/** Puts the cursor into a field that the person has just opened, before the next key is read. */

import type { RefObject } from "preact";
import { useLayoutEffect, useRef } from "preact/hooks";

export function useFocused<E extends HTMLElement>(): RefObject<E | null> {
  const field = useRef<E>(null);
  useLayoutEffect(() => field.current?.focus(), []);
  return field;
}
