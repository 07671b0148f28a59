/**
 * Removes the token of a link (`#token=…`, which browsers do not send) from the address and keeps it in memory.
 * `signing.ts` exchanges it for a cookie. If the browser accepts no cookies, the token stays here, and requests carry
 * it while this tab is open.
 */

import { caller, device } from "./storage.ts";
import { tokenOfHash } from "./token_text.ts";

/** The token of the link that opened this page; null if there was none. Any page can open such a link. */
export const tokenOfLink = tokenOfHash(location.hash);
if (tokenOfLink !== null) history.replaceState(history.state, "", location.pathname + location.search);

/** The key of an entry that is stored while this browser accepts no cookies. */
const COOKIELESS = "threadcast.cookieless";

/**
 * Whether the requests of this page can carry a token. If a person is already signed in, a page that was opened by a
 * link starts with that person's cookie, like any other page, and shares the connection.
 */
export const carriesToken = tokenOfLink !== null && (!caller || device.getItem(COOKIELESS) !== null);

/** Remembers for the next page whether this browser accepts cookies. */
export function rememberCookies(areKept: boolean): void {
  if (areKept) device.removeItem(COOKIELESS);
  else device.setItem(COOKIELESS, "yes");
}

let held: string | null = null;

/** Returns the token that requests must carry; undefined if the browser sends the cookie. */
export function token(): string | undefined {
  return held ?? undefined;
}

export function holdToken(now: string | null): void {
  held = now;
}
