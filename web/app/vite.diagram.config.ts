/**
 * The document that draws diagrams, built after the page and apart from it: in a frame without an origin nothing of the
 * page shall run, so they share no chunk.
 */

import { defineConfig } from "vite";

export default defineConfig({
  publicDir: false,
  build: {
    outDir: "../../server/static",
    emptyOutDir: false,
    target: "es2022",
    modulePreload: false,
    chunkSizeWarningLimit: 2_000,
    rolldownOptions: { input: "diagram.html" },
  },
  resolve: { dedupe: ["katex"] },
});
