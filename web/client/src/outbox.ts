/**
 * Keeps the commands that were sent and that the stream has not shown yet: in order, up to a limit, and optionally over
 * a reload.
 *
 * `MemoryOutbox` keeps the commands while the program runs. `StorageOutbox` writes them to a `Storage`, such as the
 * browser's localStorage. Each tab uses its own keys, so that no two tabs post the same command; the next tab that
 * opens takes over the commands of a closed tab (`adopt`). The outbox holds each command once, from `add` to `remove`.
 */

import { OutboxFull } from "./errors.js";
import { newId } from "./ids.js";

/** A kept command. `body` is the JSON that is posted, the same text each time (PROTOCOL §3). */
export interface Held {
  chatId: string;
  requestId: string;
  type: string;
  body: string;
}

/**
 * The type of a posted command that is being taken back. The server may have the command, so the outbox keeps its
 * request id and `body` until the server has answered.
 */
export const WITHDRAWN = "withdrawn";

export interface Outbox {
  /** Keeps a command. A command whose request id is already kept stays unchanged. Throws OutboxFull. */
  add(held: Held): void;
  remove(chatId: string, requestId: string): void;
  /** Returns the commands of a chat in the order of `add`. */
  held(chatId: string): Held[];
  /** Returns the ids of the chats for which commands are kept. */
  chats(): string[];
}

/** The most commands of one chat that can wait in the server's queue (PROTOCOL §18). */
const WAITING_MAX_COUNT = 100;
/** The most commands of one chat that overtake the server's queue. */
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

/** Whether a command overtakes the server's queue, so that it need not wait behind others in the outbox. */
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

/** The methods of `Storage` that this file uses. */
export type Store = Pick<Storage, "getItem" | "setItem" | "removeItem" | "key" | "length">;

const PREFIX = "threadcast.outbox.";

export class StorageOutbox extends MemoryOutbox {
  private readonly name = newId();
  private count = 0;

  constructor(private readonly store: Store) {
    super();
    // A lock that this tab holds while it is open. The lock tells other tabs not to take over this tab's commands.
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
      // The storage is full, so the command is kept only while this tab is open.
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
   * Takes over the commands of closed tabs; claims of client tools belonged to those tabs and are dropped. Locks show
   * which tabs are open. Without locks (a page over plain HTTP from another machine) the commands of all tabs are taken
   * over: a command that two tabs post takes effect once (PROTOCOL §3).
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
        return []; // taken by another tab meanwhile, or not written by this file
      }
    });
  }
}

function hasLocks(): boolean {
  return typeof navigator !== "undefined" && !!navigator.locks;
}
