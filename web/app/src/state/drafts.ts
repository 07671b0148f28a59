/**
 * What is written and not sent yet, of each chat: kept in this browser, so that a reload or a look at another chat loses
 * nothing. Large parts lie on the server already (PROTOCOL §10); a draft holds references to them.
 * A draft is deleted only when the outbox has the message, or when a person empties it. A tab that shows another tab's
 * draft follows its changes; a tab with a different draft keeps its own (`heard`). Where nothing can be kept
 * over a reload (a full store, a private window), drafts live as long as the page.
 */

import type { Store } from "./safe_store.ts";

export interface DraftFile {
  readonly name: string;
  readonly mime: string;
  readonly bytes: number;
  readonly url: string;
  readonly hash: string;
}

export interface Draft {
  readonly text: string;
  readonly files: readonly DraftFile[];
}

export const EMPTY: Draft = { text: "", files: [] };

/** Longer than a message may be (256 kB), so that it is the server who says that it is too long. */
const DRAFT_MAX_CHARACTERS = 300_000;
/** Drafts that are kept over a reload; the oldest go. */
export const DRAFTS_MAX_COUNT = 50;
const PREFIX = "threadcast.draft.";
const NEW = "new";

interface Kept extends Draft {
  readonly at: number;
}

export class Drafts {
  private readonly written = new Map<string, Draft>();

  constructor(
    private readonly store: Store,
    private readonly now: () => number = Date.now,
  ) {}

  /** The draft of a chat; null is the chat that nobody has begun. */
  read(chatId: string | null): Draft {
    const key = PREFIX + (chatId ?? NEW);
    const kept = this.written.get(key) ?? parse(this.store.getItem(key));
    return drafted(kept);
  }

  write(chatId: string | null, draft: Draft): void {
    const key = PREFIX + (chatId ?? NEW);
    this.written.set(key, draft);
    if (!draft.text && !draft.files.length) return this.store.removeItem(key);
    const kept: Kept = { text: draft.text.slice(0, DRAFT_MAX_CHARACTERS), files: draft.files, at: this.now() };
    if (this.store.getItem(key) === null) this.makeRoom();
    this.store.setItem(key, JSON.stringify(kept));
  }

  /**
   * Handles a draft that another tab wrote under `key`. Returns its chat (null: the new chat) and the draft, if this tab
   * showed the same draft before; else undefined.
   */
  heard({ key, oldValue, newValue }: Pick<StorageEvent, "key" | "oldValue" | "newValue">): [string | null, Draft] | undefined {
    if (!key?.startsWith(PREFIX)) return undefined;
    const ours = this.written.get(key);
    const [before, draft] = [oldValue, newValue].map((value) => drafted(parse(value))) as [Draft, Draft];
    if (ours && JSON.stringify(drafted(ours)) !== JSON.stringify(before)) return undefined;
    this.written.set(key, draft);
    const chatId = key.slice(PREFIX.length);
    return [chatId === NEW ? null : chatId, draft];
  }

  move(from: string | null, to: string): void {
    this.write(to, this.read(from));
    this.write(from, EMPTY);
  }

  private makeRoom(): void {
    const { store } = this;
    const all = Array.from({ length: store.length }, (_, at) => store.key(at) ?? "");
    const keys = all.filter((key) => key.startsWith(PREFIX));
    if (keys.length < DRAFTS_MAX_COUNT) return;
    const byAge = keys.map((key) => ({ key, at: parse(store.getItem(key))?.at ?? 0 })).sort((a, b) => a.at - b.at);
    for (const { key } of byAge.slice(0, keys.length - DRAFTS_MAX_COUNT + 1)) store.removeItem(key);
  }
}

function drafted(kept: Draft | null): Draft {
  return kept ? { text: kept.text, files: kept.files } : EMPTY;
}

/** The chat that the files of a draft lie with. */
export function homeOf(draft: Draft): string | null {
  return draft.files[0]?.url.match(/\/v1\/chats\/([A-Za-z0-9_-]{1,128})\/blobs\//)?.[1] ?? null;
}

function parse(text: string | null): Kept | null {
  try {
    const kept = JSON.parse(text ?? "null") as Partial<Kept> | null;
    if (!kept || typeof kept.text !== "string") return null;
    return { text: kept.text, files: Array.isArray(kept.files) ? kept.files : [], at: Number(kept.at) || 0 };
  } catch {
    return null; // nothing of ours
  }
}
