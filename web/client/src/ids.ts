/**
 * Names that nobody else will choose: for commands, tabs and claims.
 *
 * `crypto.randomUUID` is missing on pages that came over plain HTTP from another machine (it wants a secure context), and
 * in node 18 `crypto` is no global; so its 122 random bits are drawn by what is there.
 */

const BYTES = 16;

export function newId(): string {
  const { crypto } = globalThis as { crypto?: Crypto };
  const bytes = new Uint8Array(BYTES);
  if (crypto?.getRandomValues) crypto.getRandomValues(bytes);
  else for (let at = 0; at < BYTES; at++) bytes[at] = Math.floor(Math.random() * 256);
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
