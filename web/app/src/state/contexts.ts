/**
 * Parses and checks the context that an embedding page sends and the scope in the address, and combines them. Pure.
 * All input is untrusted, since any page may send messages to this page or link to it.
 */

import type { JsonObject } from "threadcast-client";

/** Bytes of JSON that a context may have (PROTOCOL §2). */
const CONTEXT_MAX_BYTES = 65_536;

/** The longest label, in characters, that fits on one line beside the text around it. */
const LABEL_MAX_CHARACTERS = 80;

/**
 * Parses the scope in an address: one to three names with `/` between them (PROTOCOL §13). Returns "" if the address
 * has no scope, and null if the scope is malformed.
 */
export function scopeFrom(search: string): string | null {
  const said = new URLSearchParams(search).get("scope") ?? "";
  return said && (scopeOf(said) || null);
}

/** Parses a scope from a context or an address, given as a list of names or as a path; "" if it is malformed. */
export function scopeOf(said: unknown): string {
  const names = typeof said === "string" ? said.split("/").filter(Boolean) : said;
  if (!Array.isArray(names) || !names.length || names.length > 3) return "";
  return names.every((name) => typeof name === "string" && isName(name)) ? names.join("/") : "";
}

/** A name has 1 to 64 printable characters and no white space. */
function isName(name: string): boolean {
  return name !== "" && [...name].length <= 64 && !/[/\s\p{C}\p{Z}]/u.test(name);
}

/**
 * Whether pages of an origin may send context to this page. Pages of an opaque origin ("null") may never send it. `own`
 * is this page's origin.
 */
export function isAllowed(origin: string, allowed: readonly string[], own: string): boolean {
  return origin !== "null" && allowed.some((each) => (each === "self" ? origin === own : origin === each));
}

/**
 * The content of a message: a new context, or null to withdraw the last context; or the reason why the message is
 * refused.
 */
export type Handed = { readonly context: JsonObject | null } | { readonly wrong: string };

/** Reads the `data` of a message of the type `threadcast.context`, which may be anything that a browser can copy. */
export function contextFrom(data: { readonly context?: unknown }): Handed {
  const { context } = data;
  if (context === null) return { context: null };
  let text: string | undefined;
  try {
    text = JSON.stringify(context);
  } catch {
    // The value has a cycle or a BigInt, or is nested too deeply.
  }
  const read: unknown = text === undefined ? undefined : JSON.parse(text);
  if (typeof read !== "object" || read === null || Array.isArray(read)) return { wrong: "context must be an object of JSON, or null" };
  const bytes = new TextEncoder().encode(text).length;
  if (bytes > CONTEXT_MAX_BYTES) return { wrong: `context has ${bytes} bytes of JSON; at most ${CONTEXT_MAX_BYTES} are taken` };
  return { context: read as JsonObject };
}

/** Returns a label for a context: its title, or else its most descriptive value. */
export function labelOf(context: JsonObject): string {
  const { page, scope } = context;
  const candidates = [
    context.title,
    typeof page === "object" && page !== null ? (page as JsonObject).title : page,
    context.current_page,
    Array.isArray(scope) ? scope.join(" / ") : scope,
    ...Object.entries(context).map(([key, value]) => `${key} ${typeof value === "object" ? "" : String(value)}`),
  ];
  const found = candidates.find((each) => typeof each === "string" && each.trim() !== "") ?? "no details";
  const words = String(found).replace(/[\s\p{C}]+/gu, " ").trim();
  return [...words].length > LABEL_MAX_CHARACTERS ? `${[...words].slice(0, LABEL_MAX_CHARACTERS).join("")}…` : words;
}

/**
 * Returns the `context` to send with a message; undefined for none. `page`: the context from the embedding page;
 * `scope`: the scope in the address; `own`: the chat's parameter `context`, which applies to messages that have no own
 * context (PROTOCOL §13).
 */
export function contextOf(page: JsonObject | null, scope: string, own: JsonObject | null | undefined): JsonObject | undefined {
  if (!page && !scope) return undefined;
  const place = scope ? { scope: scope.split("/") } : {};
  return { ...place, ...(page ?? own ?? {}) };
}
