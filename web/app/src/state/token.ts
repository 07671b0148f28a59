/**
 * The token of a link (`#token=…`, which no server ever sees), in memory and no longer in the address. `signing.ts` hands
 * it to the server, which gives a cookie for it. Where the browser keeps no cookies the token stays here, and requests
 * carry it for as long as this tab is open.
 */

import { tokenOfHash } from "./token_text.ts";

/** The token of the link that opened this page; null where it was no such link. Any page can open one. */
export const tokenOfLink = tokenOfHash(location.hash);
if (tokenOfLink !== null) history.replaceState(history.state, "", location.pathname + location.search);

/** Whether this page was opened by a link with a token. */
export const cameWithToken = tokenOfLink !== null;

let held: string | null = null;

/** The token that requests must carry; undefined if the browser sends the cookie. */
export function token(): string | undefined {
  return held ?? undefined;
}

export function holdToken(now: string | null): void {
  held = now;
}
