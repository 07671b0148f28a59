/** A field that somebody has just asked for has the cursor, before the next key is read. */

import type { RefObject } from "preact";
import { useLayoutEffect, useRef } from "preact/hooks";

export function useFocused<E extends HTMLElement>(): RefObject<E | null> {
  const field = useRef<E>(null);
  useLayoutEffect(() => field.current?.focus(), []);
  return field;
}
