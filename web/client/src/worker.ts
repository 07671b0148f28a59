/** The SharedWorker that holds the one hub for all tabs. Its name tells one server and caller from another. */

import { serve } from "./ports.js";
import { Hub } from "./source.js";
import { lockOfWorker, messagePort, TABS_LINES_MAX, type Hello } from "./tabs.js";
import { Wire } from "./wire.js";

let hub: Hub | null = null;

/** Tabs wait for this lock, so they are answered once it is held. */
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
