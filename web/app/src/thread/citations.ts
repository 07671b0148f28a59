/** What an answer cites, of whichever provider's making, as a numbered list. Pure. */

import type { JsonObject } from "threadcast-client";

import { isObject } from "../tools/calls.ts";

export interface Source {
  readonly title: string;
  /** http or https; else there is nothing to go to. */
  readonly url?: string;
  readonly quote?: string;
}

/** OpenAI's annotations are nested on one wire and flat on the other, Google's sources are below `web`. */
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
