/** The page is built into the server's own directory, which serves it as it is; see hatch_build.py. */

import { readFileSync } from "node:fs";
import { basename, dirname } from "node:path";

import hljs from "highlight.js";
import { defineConfig, type Plugin } from "vite";

/** `virtual:languages`, as `src/virtual.d.ts` describes it: written out, since a bundler follows only names that it sees. */
function languages(): Plugin {
  const id = "\0virtual:languages";
  return {
    name: "languages",
    resolveId: (source) => (source === "virtual:languages" ? id : undefined),
    load(asked) {
      if (asked !== id) return undefined;
      const all = hljs.listLanguages();
      const first = readFileSync("src/thread/markdown/languages.ts", "utf8"); // those that it imports are in its own file
      const files = all.filter((name) => !first.includes(`languages/${name}"`)).map((name) => `${JSON.stringify(name)}: () => import("highlight.js/lib/languages/${name}")`);
      const names = all.flatMap((name) => [name, ...(hljs.getLanguage(name)?.aliases ?? [])].map((other) => [other.toLowerCase(), name]));
      return `export const files = {${files.join(",")}};\nexport const names = ${JSON.stringify(Object.fromEntries(names))};`;
    },
  };
}

/** Every browser that this page is for knows WOFF2; KaTeX's sheet names each font in two older formats as well. */
const newestFonts: Plugin = {
  name: "newest-fonts",
  enforce: "pre",
  transform: (code, id) => (/katex[^/]*\.css$/.test(id) ? code.replace(/,\s*url\([^)]*\.(?:woff|ttf)\)\s*format\([^)]*\)/g, "") : undefined),
};

/** The class `call` of `tools/calls.module.css` is `tools-calls_call` on the page, the same in every build. */
function scopedName(local: string, file: string): string {
  const room = basename(dirname(file));
  const sheet = basename(file, ".module.css");
  return `${room === sheet ? room : `${room}-${sheet}`}_${local}`;
}

export default defineConfig({
  plugins: [languages(), newestFonts],
  oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
  css: { modules: { generateScopedName: scopedName } },
  build: {
    outDir: "../../server/static",
    emptyOutDir: true,
    target: "es2022",
    cssTarget: ["chrome123", "firefox120", "safari17.5"], // which know light-dark(); what stands in for it ignores the theme chosen here
    modulePreload: { polyfill: false },
    assetsInlineLimit: 0, // the page's policy refuses fonts that are their own address
    // What is loaded before anything is shown is one file: cut up for what comes later, it would pack 2 kB worse.
    rolldownOptions: { output: { codeSplitting: { groups: [{ name: "first", tags: ["$initial"] }] } } },
  },
  server: { proxy: { "/v1": "http://127.0.0.1:8000" } },
});
