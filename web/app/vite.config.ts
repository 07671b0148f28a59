/** Builds the page into the server's directory, from which it is served unchanged; see server/hatch_build.py. */

import { readFileSync } from "node:fs";
import { basename, dirname } from "node:path";

import hljs from "highlight.js";
import { defineConfig, type Plugin } from "vite";

/**
 * Generates `virtual:languages` (see `src/virtual.d.ts`) with literal names, because a bundler follows only literal
 * imports.
 */
function languages(): Plugin {
  const id = "\0virtual:languages";
  return {
    name: "languages",
    resolveId: (source) => (source === "virtual:languages" ? id : undefined),
    load(asked) {
      if (asked !== id) return undefined;
      const all = hljs.listLanguages();
      const first = readFileSync("src/thread/markdown/languages.ts", "utf8"); // languages that it imports statically need no file of their own
      const files = all.filter((name) => !first.includes(`languages/${name}"`)).map((name) => `${JSON.stringify(name)}: () => import("highlight.js/lib/languages/${name}")`);
      const names = all.flatMap((name) => [name, ...(hljs.getLanguage(name)?.aliases ?? [])].map((other) => [other.toLowerCase(), name]));
      return `export const files = {${files.join(",")}};\nexport const names = ${JSON.stringify(Object.fromEntries(names))};`;
    },
  };
}

/** Removes KaTeX's fonts in older formats: every supported browser reads WOFF2. */
const newestFonts: Plugin = {
  name: "newest-fonts",
  enforce: "pre",
  transform: (code, id) => (/katex[^/]*\.css$/.test(id) ? code.replace(/,\s*url\([^)]*\.(?:woff|ttf)\)\s*format\([^)]*\)/g, "") : undefined),
};

/**
 * Keeps only the lexer of marked. Without this plugin, the instance that marked creates when it is loaded would keep
 * all of marked in the build.
 */
const lexerOfMarked: Plugin = {
  name: "lexer-of-marked",
  transform(code, id) {
    if (!/marked[^/]*\.js$/.test(id)) return undefined;
    const found = /^([\s\S]*;)var \w+=new \w+;function[\s\S]*\bexport\{[^}]*?(\w+ as Lexer)[^}]*?(\w+ as Tokenizer)\b/.exec(code);
    if (!found) throw new Error("marked has another form; see lexerOfMarked in vite.config.ts");
    return { code: `${found[1]}export{${found[2]},${found[3]}};`, map: null };
  },
};

/**
 * Lets the SharedWorker's script share its code with the page, so that browsers fetch the code once. Without this
 * plugin, Vite would bundle the code a second time.
 */
const sharedWorker: Plugin = {
  name: "shared-worker",
  apply: "build",
  enforce: "pre",
  transform(code, id) {
    const script = 'new URL("./worker.js", import.meta.url)';
    if (!id.endsWith("/client/dist/tabs.js")) return undefined;
    if (!code.includes(script)) throw new Error("the client finds its worker in another way; see sharedWorker in vite.config.ts");
    const file = this.emitFile({ type: "chunk", id: id.replace(/tabs\.js$/, "worker.js"), name: "worker" });
    return { code: code.replace(script, `import.meta.ROLLUP_FILE_URL_${file}`), map: null };
  },
};

/** Names the class `call` of `tools/calls.module.css` `tools-calls_call` in every build. */
function scopedName(local: string, file: string): string {
  const room = basename(dirname(file));
  const sheet = basename(file, ".module.css");
  return `${room === sheet ? room : `${room}-${sheet}`}_${local}`;
}

export default defineConfig({
  plugins: [languages(), newestFonts, lexerOfMarked, sharedWorker],
  oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
  css: { modules: { generateScopedName: scopedName } },
  build: {
    outDir: "../../server/threadcast/static",
    emptyOutDir: true,
    license: { fileName: "licenses.md" }, // the licences of the libraries, which must be passed on with the page
    target: "es2022",
    cssTarget: ["chrome123", "firefox120", "safari17.5"], // these support light-dark(); its polyfill ignores the theme that the person chose
    modulePreload: { polyfill: false },
    assetsInlineLimit: 0, // the page's policy refuses fonts in data addresses
    // The page starts with two files, the client and the rest; more files would compress less well and take 2 kB more.
    // The SharedWorker needs only the client.
    rolldownOptions: {
      output: {
        codeSplitting: {
          groups: [
            { name: "client", test: /\/client\/dist\/(?!worker\.js)/, priority: 1 },
            { name: "first", tags: ["$initial"], test: /^(?!.*\/client\/dist\/worker\.js)/ },
          ],
        },
      },
    },
  },
  server: { proxy: { "/v1": "http://127.0.0.1:8000" } },
});
