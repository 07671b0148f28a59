/** A component whose code is fetched when it is first shown, so that the page begins without what few people open. */

import type { ComponentType } from "preact";
import { useEffect, useState } from "preact/hooks";

import { notify } from "../state/session.ts";

export function lazyOf(load: () => Promise<ComponentType>): ComponentType {
  let Loaded: ComponentType | null = null;
  return function Lazy() {
    const [, setLoaded] = useState(Loaded !== null);
    useEffect(() => {
      if (Loaded) return;
      load().then(
        (component) => {
          Loaded = component;
          setLoaded(true);
        },
        () => notify("A part of the page could not be loaded. Reload the page, and try again."),
      );
    }, []);
    return Loaded && <Loaded />;
  };
}
