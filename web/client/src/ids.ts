/**
 * Creates unique names for chats, commands, tabs and claims: 128 random bits, which cannot be guessed and never occur
 * twice by chance.
 *
 * `crypto.randomUUID` is missing in insecure contexts, such as a page that came over plain HTTP from another machine;
 * `crypto.getRandomValues` is in all contexts of browsers, and in Node.js from 20 on. Without `crypto.getRandomValues`
 * no id is created, because the values of other generators can be guessed.
 */

const BYTES = 16;

export function newId(): string {
  const bytes = globalThis.crypto.getRandomValues(new Uint8Array(BYTES));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
