/**
 * Code that is fetched when it is wanted first, so that the page begins without what few people open.
 *
 * A part that is shown by itself, such as a card in the conversation, has a `Meanwhile` of its height, so that nothing
 * moves when it comes; what somebody has just asked for needs none.
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
      if (!component) coming = null; // it is tried again when it is shown again
    }));
  return function Shown(props: Props) {
    const [, drawAgain] = useState(0);
    const isDrawn = Loaded !== null;
    if (!isDrawn) void bring(); // now, not when this has been painted
    useEffect(() => {
      // Also where it has come since it was drawn.
      if (!isDrawn) void bring().then(() => drawAgain(1));
    }, []);
    return Loaded ? <Loaded {...props} /> : Meanwhile ? <Meanwhile {...props} /> : null;
  };
}

/** What was loaded; null where that did not work, which people are told. */
export async function fetched<T>(load: () => Promise<T>): Promise<T | null> {
  try {
    return await load();
  } catch {
    notify("A part of the page could not be loaded. Is the server there? Reload the page to try again.");
    return null;
  }
}
