/**
 * Builds the document that draws diagrams, after the page and separately: it runs in a frame without an origin, so it
 * must not share chunks with the page.
 */

import { defineConfig, type Plugin } from "vite";

/**
 * Leaves out the layout engine ELK, which is large and under the licence EPL-2.0. Where a layout is not registered, Mermaid
 * uses dagre, and cose-bilkent for mindmaps; Mermaid's own small build relies on these layouts too
 * (docs/decisions/0034).
 */
const withoutElk: Plugin = {
  name: "without-elk",
  transform(code, id) {
    if (!/mermaid\/.*\.mjs$/.test(id) || !code.includes("registerDefaultLayoutLoaders = ")) return undefined;
    const found = code.replace(/,\s*\.\.\.elkLayoutLoaders\(\)/, "");
    if (found === code) throw new Error("Mermaid registers its layouts in another way; see withoutElk in vite.diagram.config.ts");
    return { code: found, map: null };
  },
};

export default defineConfig({
  plugins: [withoutElk],
  publicDir: false,
  build: {
    outDir: "../../server/threadcast/static",
    emptyOutDir: false,
    license: { fileName: "licenses-diagram.md" },
    target: "es2022",
    modulePreload: false,
    chunkSizeWarningLimit: 2_000,
    rolldownOptions: { input: "diagram.html" },
  },
  resolve: { dedupe: ["katex"] },
});
