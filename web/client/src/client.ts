/**
 * One server, seen as one caller: the way to its chats.
 *
 *     const client = connect({ url: "http://127.0.0.1:8000" });
 *     const chat = client.chat("hello");
 *     chat.subscribe(() => render(chat.messages));
 *     chat.send("What is a lease?");
 *
 * It speaks the public protocol and nothing else.
 */

import { Chat } from "./chat.js";
import type { ChatsList } from "./feed.js";
import { newId } from "./ids.js";
import { MemoryOutbox, StorageOutbox, type Outbox } from "./outbox.js";
import { Hub, type Source } from "./source.js";
import { sharedSource } from "./tabs.js";
import { Busy, Wire, type WireOptions } from "./wire.js";
import { Unreachable } from "./errors.js";

export interface Options extends WireOptions {
  /** Where commands wait until they are seen; in memory unless given, in the tab's storage with `shared`. */
  outbox?: Outbox;
  /** One connection for all tabs of this origin. Only in pages. */
  shared?: boolean;
  /** What claims of client tools are made under. Give one that stays if a program keeps its claims over a restart. */
  name?: string;
}

/**
 * A browser says so sooner than a line falls silent. It is no answer by itself, since a server on this machine is there
 * without a network, so the line is tried: a resume costs nothing where it holds (HTML, "Browser state").
 */
const NETWORK_CHANGES = ["online", "offline"] as const;

export class Client {
  private readonly wire: Wire;
  private readonly source: Source;
  private readonly outbox: Outbox;
  private readonly name: string;
  private readonly open = new Set<Chat>();
  private readonly tryTheLine = () => this.source.cut();

  constructor(options: Options = {}) {
    this.wire = new Wire(options);
    this.source = options.shared ? sharedSource(options) : new Hub(this.wire);
    this.outbox = options.outbox ?? (options.shared ? storedOutbox() : new MemoryOutbox());
    this.name = options.name ?? newId();
    const adopted = this.outbox instanceof StorageOutbox ? this.outbox.adopt() : Promise.resolve();
    void adopted.then(() => this.deliver());
    for (const change of NETWORK_CHANGES) globalThis.addEventListener?.(change, this.tryTheLine);
  }

  /** A live chat. One that does not exist yet begins with the first message. Close it when done. */
  chat(id: string): Chat {
    const chat = new Chat(id, this.wire, this.source, this.outbox, this.name);
    this.open.add(chat);
    chat.subscribe(() => chat.failure && this.open.delete(chat)); // closed or gone: nobody is to hold what it was
    return chat;
  }

  /** The caller's chats, now and after every change. Returns how to stop. */
  follow(take: (list: ChatsList) => void): () => void {
    return this.source.follow(take);
  }

  /** Any other endpoint, once; its JSON. Throws Refused, Unreachable. */
  async get<T>(path: string): Promise<T> {
    return (await this.request("GET", path)).json() as Promise<T>;
  }

  /** Any other endpoint, once. Throws Refused, Unreachable. */
  async request(
    method: string,
    path: string,
    more: { body?: BodyInit; headers?: Record<string, string>; signal?: AbortSignal } = {},
  ): Promise<Response> {
    try {
      return await this.wire.request(method, path, more);
    } catch (wrong) {
      throw wrong instanceof Busy ? new Unreachable(wrong.message) : wrong;
    }
  }

  /** Try now, without waiting for the next try: after a sign-in, or when a person asks for it. */
  retry(): void {
    this.source.cut();
  }

  /** For a developer's eyes: break the connection, or lose one event, and watch what happens. */
  get faults(): { cut(): void; drop(): void } {
    return this.source;
  }

  close(): void {
    for (const change of NETWORK_CHANGES) globalThis.removeEventListener?.(change, this.tryTheLine);
    for (const chat of this.open) chat.close();
    this.source.close();
  }

  /** What an earlier page had sent and nobody has seen goes out, whether or not its chat is opened. */
  private async deliver(): Promise<void> {
    for (const id of this.outbox.chats()) {
      const chat = this.chat(id);
      const stop = chat.subscribe(() => {
        if (chat.failure || (chat.isReady && chat.connection.held === 0)) {
          stop();
          queueMicrotask(() => chat.close());
        }
      });
    }
  }
}

/** Uses the browser's storage; memory if the browser blocks it, in which case the getter of `localStorage` throws. */
function storedOutbox(): Outbox {
  try {
    return new StorageOutbox(localStorage);
  } catch {
    return new MemoryOutbox();
  }
}

export function connect(options: Options = {}): Client {
  return new Client(options);
}
