/**
 * Keeps the unsent message of each chat in this browser, so that a reload or a visit to another chat loses nothing.
 * Files are uploaded before the message is sent (PROTOCOL §10), so a draft holds only references to them. A draft is
 * deleted only when the outbox has the message, or when a person empties it. If a tab shows the same draft as another
 * tab, it follows changes of that draft; a tab with a different draft keeps its own draft (`heard`). If the browser
 * cannot store drafts (its storage is full, or the window is private), they are kept until the page is closed.
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

/**
 * This limit exceeds the limit of a message (256 kB), so that a long text is refused by the server and not cut here.
 */
const DRAFT_MAX_CHARACTERS = 300_000;
/** The number of stored drafts; the oldest are deleted. */
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

  /** Returns the draft of a chat; null stands for the new chat. */
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
   * Handles a draft that another tab wrote under `key`. If this tab showed the same draft before, returns the draft's
   * chat (null: the new chat) and the draft; else undefined.
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

/** Returns the id of the chat to which the files of a draft were uploaded. */
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
