/** Reads the citations of an answer, in the formats of all providers, as a numbered list. Pure. */

import type { JsonObject } from "threadcast-client";

import { isObject } from "../tools/calls.ts";

export interface Source {
  readonly title: string;
  /** Null unless the address is http or https. */
  readonly url?: string;
  readonly quote?: string;
}

/**
 * Returns the sources of an answer. OpenAI's annotations are nested in one API and flat in the other; Google's sources
 * are below `web`.
 */
export function sourcesOf(citations: readonly JsonObject[]): Source[] {
  const found = new Map<string, Source>();
  for (const citation of citations) {
    const inner = [citation.url_citation, citation.web, citation.retrievedContext].find(isObject) ?? citation;
    const url = webAddress(text(inner.url) ?? text(inner.uri));
    const title = text(inner.title) ?? text(inner.document_title) ?? text(inner.filename) ?? (url && new URL(url).host);
    if (!title) continue;
    const quote = text(citation.cited_text);
    const source = { title, ...(url && { url }), ...(quote && { quote }) };
    const key = url ?? title;
    if (!found.has(key)) found.set(key, source);
  }
  return [...found.values()];
}

function webAddress(said: string | undefined): string | undefined {
  if (!said || !URL.canParse(said)) return undefined;
  const url = new URL(said);
  return url.protocol === "https:" || url.protocol === "http:" ? url.href : undefined;
}

function text(value: unknown): string | undefined {
  return typeof value === "string" && value.trim() ? value.trim() : undefined;
}
