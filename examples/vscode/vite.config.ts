/**
 * Builds the one file that VS Code loads: it is in CommonJS, includes the client, and excludes `vscode`, which the
 * editor provides.
 */

import { fileURLToPath } from "node:url";

const here = (path: string) => fileURLToPath(new URL(path, import.meta.url));

export default {
  resolve: { alias: { "threadcast-client": here("../../web/client/src/index.ts") } },
  define: { "import.meta.url": "undefined" }, // used only by pages, to find the worker that their tabs share
  build: {
    target: "node18",
    outDir: "dist",
    emptyOutDir: true,
    minify: false,
    lib: { entry: here("src/extension.ts"), formats: ["cjs"], fileName: () => "extension.cjs" },
    rolldownOptions: { external: ["vscode"] },
  },
};
