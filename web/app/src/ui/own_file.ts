/**
 * Files that lie on this server: how one is shown, and how one is saved. Of images no others are ever fetched
 * (own_image.ts).
 *
 * The browser fetches them by itself, with its cookies; where a token is wanted in a header, which no `src` can send,
 * we do, and hand it the bytes.
 */

import { useEffect, useState } from "preact/hooks";

import { client } from "../state/session.ts";
import { token } from "../state/token.ts";
import { OWN_IMAGE } from "./own_image.ts";

/** What may stand in the `src` of an image: null for one of elsewhere, and until it is there. */
export function useOwnImage(url: string): string | null {
  return useOwnFile(OWN_IMAGE.test(url) ? url : null);
}

/** What may stand in `src`: the address itself, or the bytes that were fetched with the caller's token. */
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

/** By then the browser has begun to save; it keeps the bytes itself. */
const SAVED_MS = 60_000;

export function save(content: Blob, name: string): void {
  const url = URL.createObjectURL(content);
  Object.assign(document.createElement("a"), { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), SAVED_MS);
}
