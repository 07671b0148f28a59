/**
 * The token of a link (`#token=…`, which no server ever sees), in memory and no longer in the address. `signing.ts` hands
 * it to the server, which gives a cookie for it. Where the browser keeps no cookies the token stays here, and requests
 * carry it for as long as this tab is open.
 */

import { tokenOfHash } from "./token_text.ts";

let held = tokenOfHash(location.hash);
if (held !== null) history.replaceState(history.state, "", location.pathname + location.search);

/** Whether this page was opened by a link with a token. */
export const cameWithToken = held !== null;

/** The token that requests must carry; undefined if the browser sends the cookie. */
export function token(): string | undefined {
  return held ?? undefined;
}

export function holdToken(now: string | null): void {
  held = now;
}
