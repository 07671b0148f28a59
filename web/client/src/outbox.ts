/**
 * What was sent and is not seen in the stream yet: in order, bounded, and kept over a reload if wanted.
 *
 * `MemoryOutbox` forgets with the program. `StorageOutbox` writes to a `Storage`, such as the browser's localStorage:
 * each tab under a name of its own, so that no two post the same; what a closed tab left is taken over by the next one
 * that opens (`adopt`). The law: a command is in it from `add` to `remove`, and never twice.
 */

import { OutboxFull } from "./errors.js";
import { newId } from "./ids.js";

/** One command; `body` is the JSON that goes out, the same text each time (PROTOCOL §3). */
export interface Held {
  chatId: string;
  requestId: string;
  type: string;
  body: string;
}

/**
 * The type of a posted command that is being taken back. The server may have it, so the command is kept, under its own
 * request id, until the server has answered. `body` is still the command's.
 */
export const WITHDRAWN = "withdrawn";

export interface Outbox {
  /** Throws OutboxFull. One whose id is kept already stays as it is. */
  add(held: Held): void;
  remove(chatId: string, requestId: string): void;
  /** In the order of `add`. */
  held(chatId: string): Held[];
  /** The chats for which something is kept. */
  chats(): string[];
}

/** Commands of one chat that would wait in the server's queue, which holds no more (PROTOCOL §18). */
const WAITING_MAX_COUNT = 100;
/** Those that overtake that queue. */
const EXEMPT_MAX_COUNT = 1_000;
const EXEMPT: ReadonlySet<string> = new Set([
  "abort",
  "set_params",
  "tool_decision",
  "tool_decisions",
  "ide_tool_result",
  "ide_tool_claim",
  "edit_queued",
  WITHDRAWN,
]);

/** It does not wait in the server's queue, so it need not wait behind what does. */
export function isExempt(held: Held): boolean {
  return EXEMPT.has(held.type);
}

export class MemoryOutbox implements Outbox {
  private readonly kept: Held[] = [];

  add(held: Held): void {
    const same = this.held(held.chatId);
    if (same.some((other) => other.requestId === held.requestId)) return;
    const alike = same.filter((other) => isExempt(other) === isExempt(held)).length;
    if (alike >= (isExempt(held) ? EXEMPT_MAX_COUNT : WAITING_MAX_COUNT)) {
      throw new OutboxFull(`${alike} commands of this chat wait to be seen by the server; wait until some have gone`);
    }
    this.kept.push(held);
  }

  remove(chatId: string, requestId: string): void {
    const at = this.kept.findIndex((held) => held.chatId === chatId && held.requestId === requestId);
    if (at >= 0) this.kept.splice(at, 1);
  }

  held(chatId: string): Held[] {
    return this.kept.filter((held) => held.chatId === chatId);
  }

  chats(): string[] {
    return [...new Set(this.kept.map((held) => held.chatId))];
  }
}

/** What of `Storage` is used. */
export type Store = Pick<Storage, "getItem" | "setItem" | "removeItem" | "key" | "length">;

const PREFIX = "threadcast.outbox.";

export class StorageOutbox extends MemoryOutbox {
  private readonly name = newId();
  private count = 0;

  constructor(private readonly store: Store) {
    super();
    // Held for as long as this tab lives: how others know that what it keeps is not left behind.
    if (hasLocks()) navigator.locks.request(PREFIX + this.name, () => new Promise(() => {})).catch(() => {});
  }

  override add(held: Held): void {
    const before = this.held(held.chatId).length;
    super.add(held);
    if (this.held(held.chatId).length === before) return;
    const key = `${PREFIX}${this.name}.${String(this.count++).padStart(9, "0")}`;
    try {
      this.store.setItem(key, JSON.stringify(held));
    } catch {
      // A full store: the command is kept for as long as this tab lives.
    }
  }

  override remove(chatId: string, requestId: string): void {
    super.remove(chatId, requestId);
    for (const [key, held] of this.entries()) {
      const isOurs = key.startsWith(PREFIX + this.name);
      if (isOurs && held.chatId === chatId && held.requestId === requestId) this.store.removeItem(key);
    }
  }

  /**
   * Takes over the commands of closed tabs; claims of client tools belonged to those tabs and are dropped. Without locks,
   * which show the open tabs (a page over plain HTTP from another machine), it takes over the commands of all tabs: a
   * command that two tabs post takes effect once (PROTOCOL §3).
   */
  async adopt(): Promise<void> {
    const { held: locks = [] } = hasLocks() ? await navigator.locks.query().catch(() => ({ held: [] })) : {};
    const alive = new Set(locks.map((lock) => lock.name));
    for (const [key, held] of this.entries()) {
      if (alive.has(key.slice(0, key.lastIndexOf("."))) || key.startsWith(PREFIX + this.name)) continue;
      this.store.removeItem(key);
      if (held.type !== "ide_tool_claim") this.add(held);
    }
  }

  private entries(): [string, Held][] {
    const keys = Array.from({ length: this.store.length }, (_, at) => this.store.key(at) ?? "");
    const ours = keys.filter((key) => key.startsWith(PREFIX)).sort();
    return ours.flatMap((key) => {
      try {
        return [[key, JSON.parse(this.store.getItem(key) ?? "") as Held] as [string, Held]];
      } catch {
        return []; // taken by another tab meanwhile, or nothing of ours
      }
    });
  }
}

function hasLocks(): boolean {
  return typeof navigator !== "undefined" && !!navigator.locks;
}
