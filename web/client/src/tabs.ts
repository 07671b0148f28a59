/**
 * One connection for all tabs of an origin: browsers allow six to a host over HTTP/1.1, so nine tabs cannot have nine.
 *
 * With SharedWorker the hub lives in the worker. Where that is missing (Chrome on Android), the tabs elect one by a Web
 * Lock; it holds the hub, the others reach it over a BroadcastChannel, and when it closes the next one in line takes
 * over and begins anew. Where neither is there, each page has a connection of its own.
 */

import { newId } from "./ids.js";
import { serve, RemoteHub, type Port } from "./ports.js";
import { Hub, type Source } from "./source.js";
import { Wire, type WireOptions } from "./wire.js";

/** What of the options can be sent to a worker. */
export interface SharedOptions {
  url?: string;
  token?: string;
}

/** What a tab says first to the worker. */
export interface Hello {
  options: SharedOptions;
  lock: string;
}

/** A source that all tabs share, with the same server and the same token, as well as this browser can. */
export function sharedSource(options: WireOptions): Source {
  const { url, token, patience } = options;
  if (typeof token === "function" || options.fetch || patience) return new Hub(new Wire(options));
  const locks = typeof navigator === "undefined" ? undefined : navigator.locks;
  const absolute = new URL(url ?? "/", location.href).href.replace(/\/$/, "");
  const name = `threadcast ${absolute} ${hash(token ?? "")}`;
  const lock = `${name} ${newId()}`;
  const alive = held(locks, lock);
  if (typeof SharedWorker !== "undefined") {
    const worker = new SharedWorker(new URL("./worker.js", import.meta.url), { type: "module", name });
    const hello: Hello = { options: { url: absolute, token }, lock };
    const port = after(alive, messagePort(worker.port));
    port.post(hello);
    const hub = new RemoteHub(port);
    addEventListener("pagehide", (left) => left.persisted || hub.close());
    return hub;
  }
  if (locks && typeof BroadcastChannel !== "undefined") return elected(name, lock, alive, () => new Hub(new Wire(options)));
  return new Hub(new Wire(options));
}

/** Once this tab holds its lock, which it then keeps for as long as it lives. At once where there are no locks. */
function held(locks: LockManager | undefined, lock: string): Promise<void> {
  if (!locks) return Promise.resolve();
  return new Promise((got) => void locks.request(lock, () => (got(), new Promise(() => {}))));
}

/** A port that says nothing before `ready`: the hub takes a tab whose lock is free for one that is gone. */
function after(ready: Promise<void>, port: Port): Port {
  return { post: (message) => void ready.then(() => port.post(message)), listen: port.listen };
}

export function messagePort(port: MessagePort): Port {
  return {
    post: (message) => port.postMessage(message),
    listen: (take) => {
      port.onmessage = (event) => take(event.data);
    },
  };
}

interface Letter {
  from: string;
  to: string;
  message: unknown;
}

/** The tab that has the lock `name` holds the hub; `me` is this tab's own lock and its address. */
function elected(name: string, me: string, alive: Promise<void>, newHub: () => Hub): Source {
  const channel = new BroadcastChannel(name);
  const listeners = new Set<(letter: Letter) => void>();
  const deliver = (letter: Letter) => listeners.forEach((listen) => listen(letter));
  channel.onmessage = (event) => deliver(event.data as Letter);
  const send = (letter: Letter) => {
    channel.postMessage(letter);
    queueMicrotask(() => deliver(letter)); // a channel does not speak to itself
  };
  const port = (from: string, to: string): Port => ({
    post: (message) => send({ from, to, message }),
    listen: (take) => {
      listeners.add((letter) => letter.to === from && letter.from === to && take(letter.message));
    },
  });
  const source = new RemoteHub(after(alive, port(me, "hub")));
  listeners.add((letter) => letter.to === "all" && source.begin());
  void navigator.locks.request(name, () => {
    const hub = newHub();
    const served = new Set<string>();
    listeners.add((letter) => {
      if (letter.to !== "hub" || served.has(letter.from)) return;
      served.add(letter.from);
      serve(hub, replaying(port("hub", letter.from), letter.message), letter.from === me ? undefined : letter.from);
    });
    send({ from: "hub", to: "all", message: null });
    return new Promise(() => {}); // until this tab is closed
  });
  return source;
}

/** A port whose first message has come before anybody listened. */
function replaying(port: Port, first: unknown): Port {
  return {
    post: port.post,
    listen: (take) => {
      port.listen(take);
      take(first);
    },
  };
}

/** A short name for a token, so that two who are logged in as others do not share a worker (FNV-1a). */
function hash(text: string): string {
  let value = 0x811c9dc5;
  for (const character of text) value = Math.imul(value ^ (character.codePointAt(0) ?? 0), 0x01000193);
  return (value >>> 0).toString(36);
}
