/** A field that somebody has just asked for has the cursor. */

import type { RefObject } from "preact";
import { useEffect, useRef } from "preact/hooks";

export function useFocused<E extends HTMLElement>(): RefObject<E | null> {
  const field = useRef<E>(null);
  useEffect(() => field.current?.focus(), []);
  return field;
}
