/**
 * The bearer token of a server that wants one. It is given once in the link (`#token=…`), which no server ever sees, and
 * kept in this tab's session; without one the requests carry the origin's cookies.
 */

const KEY = "threadcast.token";

export function token(): string | undefined {
  const given = /(?:^#|&)token=([^&]+)/.exec(location.hash)?.[1];
  if (given) {
    sessionStorage.setItem(KEY, decoded(given));
    history.replaceState(null, "", location.pathname + location.search);
  }
  return sessionStorage.getItem(KEY) ?? undefined;
}

/** "" is none. */
export function setToken(value: string): void {
  if (value) sessionStorage.setItem(KEY, value);
  else sessionStorage.removeItem(KEY);
  location.reload();
}

/** A token that was put into the link as it is may hold a `%` of its own. */
function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
