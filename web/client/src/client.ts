/**
 * Connects to one server as one caller, and opens its chats.
 *
 *     const client = connect({ url: "http://127.0.0.1:8000" });
 *     const chat = client.chat("hello");
 *     chat.subscribe(() => render(chat.messages));
 *     chat.send("What is a lease?");
 *
 * The client uses only the public protocol.
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
  /**
   * Keeps commands until the stream shows them. By default commands are kept in memory, and with `shared` in the
   * browser's storage.
   */
  outbox?: Outbox;
  /** All tabs of this origin use one connection. Only in pages. */
  shared?: boolean;
  /**
   * The name under which this client claims calls of client tools. Pass a constant name if a program should keep its
   * claims over a restart.
   */
  name?: string;
}

/**
 * The browser notices a lost network sooner than a missing heartbeat shows it. But a server on this machine is
 * reachable without a network (HTML, "Browser state"), so the client merely reconnects. If the connection was good,
 * resuming costs nothing.
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

  /**
   * Opens a live chat. A chat that does not exist yet begins with the first message. Call `close()` on the chat when it
   * is no longer needed.
   */
  chat(id: string): Chat {
    const chat = new Chat(id, this.wire, this.source, this.outbox, this.name);
    this.open.add(chat);
    chat.subscribe(() => chat.failure && this.open.delete(chat)); // forgets a closed or refused chat
    return chat;
  }

  /**
   * Calls `take` with the list of the caller's chats, now and after every change, until the returned function is
   * called.
   */
  follow(take: (list: ChatsList) => void): () => void {
    return this.source.follow(take);
  }

  /** Sends one request to any other endpoint and returns the JSON of the answer. Throws Refused, Unreachable. */
  async get<T>(path: string): Promise<T> {
    return (await this.request("GET", path)).json() as Promise<T>;
  }

  /** Sends one request to any other endpoint and returns the answer. Throws Refused, Unreachable. */
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

  /**
   * Reconnects now instead of after the pause. Call this method after a sign-in, or when a person asks for a reconnect.
   */
  retry(): void {
    this.source.cut();
  }

  /** Functions that break the connection or lose one event, so that developers see how the client recovers. */
  get faults(): { cut(): void; drop(): void } {
    return this.source;
  }

  close(): void {
    for (const change of NETWORK_CHANGES) globalThis.removeEventListener?.(change, this.tryTheLine);
    for (const chat of this.open) chat.close();
    this.source.close();
  }

  /**
   * Opens the chats for which an earlier page kept commands, so that these commands are posted even if no view opens
   * the chat.
   */
  private async deliver(): Promise<void> {
    for (const id of this.outbox.chats()) {
      const chat = this.chat(id);
      const stop = chat.subscribe(() => {
        if (chat.failure || (chat.isReady && !chat.waiting.length)) {
          stop();
          queueMicrotask(() => chat.close());
        }
      });
    }
  }
}

/** Uses the browser's storage. If the browser blocks it, the getter of `localStorage` throws, and memory is used. */
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
