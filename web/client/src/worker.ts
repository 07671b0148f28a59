/** The SharedWorker that holds the one hub for all tabs. Its name tells one server and token from another. */

import { serve } from "./ports.js";
import { Hub } from "./source.js";
import { messagePort, TABS_LINES_MAX, type Hello } from "./tabs.js";
import { Wire } from "./wire.js";

let hub: Hub | null = null;

addEventListener("connect", (event) => {
  const port = (event as MessageEvent).ports[0] as MessagePort;
  port.onmessage = (first: MessageEvent<Hello>) => {
    hub ??= new Hub(new Wire(first.data.options), TABS_LINES_MAX);
    serve(hub, messagePort(port), first.data.lock);
  };
});
