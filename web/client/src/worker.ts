/** The SharedWorker that runs one hub for all tabs. Each server and caller has a worker with its own name. */

import { serve } from "./ports.js";
import { Hub } from "./source.js";
import { lockOfWorker, messagePort, TABS_LINES_MAX, type Hello } from "./tabs.js";
import { Wire } from "./wire.js";

let hub: Hub | null = null;

/**
 * Resolves once this worker holds its lock. Tabs are answered only after that, because they watch the lock to notice
 * the worker's end.
 */
const alive = new Promise<void>((got) => {
  if (!navigator.locks) return got();
  navigator.locks.request(lockOfWorker(self.name), () => (got(), new Promise(() => {}))).catch(() => got());
});

addEventListener("connect", (event) => {
  const port = (event as MessageEvent).ports[0] as MessagePort;
  const begin = (first: MessageEvent<Hello>) => {
    hub ??= new Hub(new Wire(first.data.options), TABS_LINES_MAX);
    serve(hub, messagePort(port), first.data.lock);
  };
  // The port queues messages until a listener is set.
  void alive.then(() => (port.onmessage = begin));
});
