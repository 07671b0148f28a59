/**
 * Shows and saves files of this server. Images of other servers are never fetched (own_image.ts).
 *
 * The browser fetches this server's files with its cookies. If a token must be sent in a header, which `src` cannot
 * do, this module fetches the files and passes on the bytes.
 */

import { useEffect, useState } from "preact/hooks";

import { client } from "../state/session.ts";
import { token } from "../state/token.ts";
import { OWN_IMAGE } from "./own_image.ts";

/** Returns the `src` of an image; null for an image of another server, and while an image is being loaded. */
export function useOwnImage(url: string): string | null {
  return useOwnFile(OWN_IMAGE.test(url) ? url : null);
}

/** Returns a `src`: the address itself, or an object address of the bytes that were fetched with the caller's token. */
export function useOwnFile(url: string | null): string | null {
  const isPlain = url === null || url.startsWith("data:") || token() === undefined;
  const [fetched, setFetched] = useState<string | null>(null);
  useEffect(() => {
    if (isPlain) return;
    let made = "";
    const end = new AbortController();
    client
      .request("GET", url, { signal: end.signal })
      .then(async (answer) => setFetched((made = URL.createObjectURL(await answer.blob()))))
      .catch(() => setFetched(null));
    return () => {
      end.abort();
      URL.revokeObjectURL(made);
    };
  }, [url]);
  return isPlain ? url : fetched;
}

/** After this time the browser has started to save the file, and has its own copy. */
const SAVED_MS = 60_000;

export function save(content: Blob, name: string): void {
  const url = URL.createObjectURL(content);
  Object.assign(document.createElement("a"), { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), SAVED_MS);
}
