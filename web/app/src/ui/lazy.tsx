/**
 * Loads code when it is first needed, so that the page starts without its rare parts.
 *
 * A part that appears by itself, such as a card in the conversation, has a placeholder `Meanwhile` of the same height,
 * so that nothing moves; a part that the person has just opened needs no placeholder.
 */

import type { ComponentType, FunctionComponent } from "preact";
import { useEffect, useState } from "preact/hooks";

import { notify } from "../state/session.ts";

export function lazyOf<Props extends object>(load: () => Promise<ComponentType<Props>>, Meanwhile?: ComponentType<Props>): FunctionComponent<Props> {
  let Loaded: ComponentType<Props> | null = null;
  let coming: Promise<void> | null = null;
  const bring = (): Promise<void> =>
    (coming ??= fetched(load).then((component) => {
      Loaded = component;
      if (!component) coming = null; // the load is tried again when the part is shown again
    }));
  return function Shown(props: Props) {
    const [, drawAgain] = useState(0);
    const isDrawn = Loaded !== null;
    if (!isDrawn) void bring(); // before the browser paints
    useEffect(() => {
      // The module may have arrived since the component was drawn.
      if (!isDrawn) void bring().then(() => drawAgain(1));
    }, []);
    return Loaded ? <Loaded {...props} /> : Meanwhile ? <Meanwhile {...props} /> : null;
  };
}

/** Returns the loaded module. If loading fails, shows a notice and returns null. */
export async function fetched<T>(load: () => Promise<T>): Promise<T | null> {
  try {
    return await load();
  } catch {
    notify("A part of the page could not be loaded. Reload the page to try again.");
    return null;
  }
}
