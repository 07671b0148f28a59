/** The page is built into the server's own directory, which serves it as it is; see hatch_build.py. */

import { basename, dirname } from "node:path";

import { defineConfig } from "vite";

/** The class `call` of `tools/calls.module.css` is `tools-calls_call` on the page, the same in every build. */
function scopedName(local: string, file: string): string {
  const room = basename(dirname(file));
  const sheet = basename(file, ".module.css");
  return `${room === sheet ? room : `${room}-${sheet}`}_${local}`;
}

export default defineConfig({
  oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
  css: { modules: { generateScopedName: scopedName } },
  build: {
    outDir: "../../server/static",
    emptyOutDir: true,
    target: "es2022",
    cssTarget: ["chrome123", "firefox120", "safari17.5"], // which know light-dark(); what stands in for it ignores the theme chosen here
    modulePreload: { polyfill: false },
    // What is loaded before anything is shown is one file: cut up for what comes later, it would pack 2 kB worse.
    rolldownOptions: { output: { codeSplitting: { groups: [{ name: "first", tags: ["$initial"] }] } } },
  },
  server: { proxy: { "/v1": "http://127.0.0.1:8000" } },
});
