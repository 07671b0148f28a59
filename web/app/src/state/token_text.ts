/** Finds the token in pasted text, which is the token itself or the whole link that holds it. Pure. */

/** The text contains no token. The message is a sentence for the person. */
export class NoToken extends Error {}

/** Returns the token. Throws NoToken. `host` is this server's host, since a link for another server is of no use. */
export function tokenIn(pasted: string, host: string): string {
  const text = pasted.trim().replace(/^(["'`<])(.*)["'`>]$/s, "$2").trim();
  if (!text) throw new NoToken("Paste the token, or the link that holds it.");
  const link = /^https?:\/\//i.test(text) && URL.canParse(text) ? new URL(text) : null;
  if (link && link.host !== host) throw new NoToken(`This link is for the server ${link.host}, not for ${host}.`);
  const given = tokenOfHash(link ? link.hash : text);
  if (link && !given) throw new NoToken("There is no token in this link: after the address it should have “#token=”.");
  const token = given ?? text.replace(/^bearer\s+/i, "");
  // A token may hold only characters that a header can carry, and no space (RFC 6750 §2.1).
  if (!/^[\x21-\x7e]+$/.test(token)) throw new NoToken("This is not a token: it contains spaces or other characters that tokens do not have.");
  return token;
}

/** Returns the value of `#token=…`; null if there is none. */
export function tokenOfHash(hash: string): string | null {
  const given = /(?:^|[#&])token=([^&\s]+)/.exec(hash)?.[1];
  return given === undefined ? null : decoded(given);
}

/** Decodes a token, which may contain a `%` if it was put into the link without encoding. */
function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
