/**
 * Serves the page, and passes requests for the server on, so that the page and the server have one origin. The two
 * packages of this repository are taken from their sources.
 */

import { fileURLToPath } from "node:url";

const server = process.env.THREADCAST_URL ?? "http://127.0.0.1:8000";
const web = process.env.THREADCAST_WEB ?? fileURLToPath(new URL("../../../web", import.meta.url));
const proxy = { "/ai-sdk": server, "/v1": server };

export default {
  resolve: {
    alias: { "threadcast-ai-sdk": `${web}/ai-sdk/src/index.ts`, "threadcast-client": `${web}/client/src/index.ts` },
  },
  server: { proxy },
  preview: { proxy },
};
