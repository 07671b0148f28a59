/** The public names of the package. */

export { ThreadcastTransport, type Page, type TransportOptions } from "./transport.js";
export { uiMessages, type UIMessage, type UIPart } from "./messages.js";
