/**
 * Shares one connection between all tabs of an origin, because browsers allow only six connections to a host over
 * HTTP/1.1. Three ways are tried in this order. First, the hub runs in a SharedWorker. If the browser has no
 * SharedWorker (Chrome on Android), or the worker's script does not load, the tabs elect one tab by a Web Lock. The
 * elected tab runs the hub, and the other tabs reach the hub over a BroadcastChannel. When the elected tab closes, the
 * next tab that waits for the lock starts a new hub. If the browser cannot elect a tab either, or no tab answers, the
 * tab has a hub of its own.
 */

import { after } from "./clock.js";
import { newId } from "./ids.js";
import { serve, RemoteHub, type Port } from "./ports.js";
import { Hub, type Source } from "./source.js";
import { Wire, type WireOptions } from "./wire.js";

/** The options that can be sent to a worker. */
export type SharedOptions = Pick<WireOptions, "url" | "principal" | "awaitsSignIn"> & { token?: string };

/** A tab's first message to the worker. `lock`: the lock that the tab holds while it is open; "" without locks. */
export interface Hello {
  options: SharedOptions;
  lock: string;
}

/**
 * The number of connections for the chats of all tabs that share a hub. With the connection of the chat list and the
 * requests, a browser's limit of six connections is not reached.
 */
export const TABS_LINES_MAX = 1;

/**
 * The time that a worker's script or an elected tab may take to answer: as long as opening a connection may take
 * (`connectMs`).
 */
const HUB_MS = 5_000;

/**
 * One tab's membership in a hub. `name` is unique for each server and caller; `me` names this tab's lock and address.
 */
interface Membership {
  readonly hub: RemoteHub;
  readonly options: SharedOptions;
  readonly name: string;
  readonly me: string;
  /**
   * Resolves once this tab holds its lock: to the lock's name, or to "" if the browser grants no lock. If the lock of a
   * tab becomes free, the hub concludes that the tab is gone.
   */
  readonly alive: Promise<string>;
  /** Aborts when the page is unloaded or enters the back-forward cache. */
  readonly signal: AbortSignal;
}

/** Tries to reach a hub. Calls `fail` once if there is no hub. Throws if the browser does not support this way. */
type Way = (membership: Membership, fail: () => void) => void;

/**
 * Returns a source that all tabs with the same server and caller share, or a source of this tab's own if the options or
 * the browser prevent sharing.
 */
export function sharedSource(options: WireOptions): Source {
  const { url, token, principal, awaitsSignIn, retryPolicy } = options;
  if (typeof token === "function" || options.fetch || retryPolicy) return new Hub(new Wire(options), TABS_LINES_MAX);
  const absolute = new URL(url ?? "/", location.href).href.replace(/\/$/, "");
  const shared: SharedOptions = { url: absolute, token, principal, awaitsSignIn };
  const name = `threadcast ${absolute} ${hash([token, principal].join(" "))}`;
  const hub = new RemoteHub();
  let present: AbortController | null = null;

  const arrive = () => {
    present = new AbortController();
    const { signal } = present;
    const me = `${name} ${newId()}`;
    join({ hub, options: shared, name, me, alive: held(me, signal), signal }, [byWorker, byElection, alone]);
  };
  // A page in the back-forward cache runs no code: the page leaves the hub, and joins again when it is shown.
  addEventListener("pagehide", () => {
    hub.bye();
    hub.move(null);
    present?.abort();
    present = null;
  });
  addEventListener("pageshow", () => present ?? arrive());
  arrive();
  return hub;
}

/** Takes the first of these ways that works. */
function join(membership: Membership, ways: readonly Way[]): void {
  const [way, ...others] = ways;
  if (!way || membership.signal.aborted) return;
  let isOver = false;
  const fail = () => {
    if (isOver || membership.signal.aborted) return;
    isOver = true;
    cancel();
    membership.hub.move(null);
    join(membership, others);
  };
  const cancel = after(HUB_MS, fail);
  membership.hub.onHere = cancel;
  membership.signal.addEventListener("abort", cancel);
  try {
    way(membership, fail);
  } catch {
    fail();
  }
}

const byWorker: Way = ({ hub, options, name, alive, signal }, fail) => {
  const worker = new SharedWorker(new URL("./worker.js", import.meta.url), { type: "module", name });
  worker.onerror = () => {
    worker.port.close();
    fail();
  };
  const isHere = hub.onHere;
  hub.onHere = () => {
    isHere();
    // A terminated worker sends no message, but its lock becomes free.
    navigator.locks?.request(lockOfWorker(name), { signal }, fail).catch(() => {});
  };
  const port = messagePort(worker.port);
  void alive.then((lock) => port.post({ options, lock } satisfies Hello));
  hub.move(later(alive, port)); // its messages go out after Hello
};

/** The lock that the worker of this name holds while it runs. */
export function lockOfWorker(name: string): string {
  return `${name} worker`;
}

/** Elects a tab: the tab that has the lock `name` runs the hub. */
const byElection: Way = ({ hub, options, name, me, alive, signal }, fail) => {
  const channel = new BroadcastChannel(name);
  const listeners = new Set<(envelope: Envelope) => void>();
  const deliver = (envelope: Envelope) => listeners.forEach((listen) => listen(envelope));
  channel.onmessage = (event) => deliver(event.data as Envelope);
  const send = (envelope: Envelope) => {
    if (signal.aborted) return;
    channel.postMessage(envelope);
    queueMicrotask(() => deliver(envelope)); // a channel does not deliver to its own sender
  };
  const port = (from: string, to: string): Port => ({
    post: (message) => send({ from, to, message }),
    listen: (take) => {
      listeners.add((envelope) => envelope.to === from && envelope.from === to && take(envelope.message));
    },
  });
  signal.addEventListener("abort", () => channel.close());
  hub.move(later(alive, port(me, "hub")));
  listeners.add((envelope) => envelope.to === "all" && hub.begin());
  const rule = () => {
    const own = new Hub(new Wire(options), TABS_LINES_MAX);
    const served = new Set<string>();
    listeners.add((envelope) => {
      if (envelope.to !== "hub" || served.has(envelope.from)) return;
      served.add(envelope.from);
      serve(own, replaying(port("hub", envelope.from), envelope.message), envelope.from === me ? undefined : envelope.from);
    });
    send({ from: "hub", to: "all", message: null });
    return new Promise<void>((left) => signal.addEventListener("abort", () => (own.close(), left())));
  };
  navigator.locks.request(name, { signal }, rule).catch(fail);
};

const alone: Way = ({ hub, options, signal }) => {
  const own = new Hub(new Wire(options), TABS_LINES_MAX);
  signal.addEventListener("abort", () => own.close());
  const [ours, theirs] = pipe();
  serve(own, theirs);
  hub.move(ours);
};

/**
 * Takes a lock, to be held until `signal` aborts. Resolves to the lock's name once this tab has the lock, or to "" if
 * the browser grants no lock.
 */
function held(lock: string, signal: AbortSignal): Promise<string> {
  const locks = typeof navigator === "undefined" ? undefined : navigator.locks;
  if (!locks) return Promise.resolve("");
  return new Promise((got) => {
    const hold = () => (got(lock), new Promise<void>((left) => signal.addEventListener("abort", () => left())));
    locks.request(lock, { signal }, hold).catch(() => got("")); // the browser refuses, as in a page without storage
  });
}

/** Returns a port that sends nothing before `ready` resolves. */
function later(ready: Promise<unknown>, port: Port): Port {
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

interface Envelope {
  from: string;
  to: string;
  message: unknown;
}

/** Returns two connected ports within this page. */
function pipe(): [Port, Port] {
  const takes: ((message: unknown) => void)[] = [];
  const end = (mine: number, other: number): Port => ({
    post: (message) => queueMicrotask(() => takes[other]?.(message)),
    listen: (take) => {
      takes[mine] = take;
    },
  });
  return [end(0, 1), end(1, 0)];
}

/**
 * Returns a port that delivers `first`, a message that arrived before there was a listener, ahead of later messages.
 */
function replaying(port: Port, first: unknown): Port {
  return {
    post: port.post,
    listen: (take) => {
      port.listen(take);
      take(first);
    },
  };
}

/** A short hash of a caller (FNV-1a), so that different callers do not share a worker. */
function hash(text: string): string {
  let value = 0x811c9dc5;
  for (const character of text) value = Math.imul(value ^ (character.codePointAt(0) ?? 0), 0x01000193);
  return (value >>> 0).toString(36);
}
