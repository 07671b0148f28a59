/**
 * Colours code. Loads the languages of highlight.js: the common languages together with the first code, and every other
 * language from a separate file when its code is shown. TypeScript's grammar reads JavaScript too, and is about as
 * large as JavaScript's grammar.
 */

import hljs from "highlight.js/lib/core";
import bash from "highlight.js/lib/languages/bash";
import cpp from "highlight.js/lib/languages/cpp";
import css from "highlight.js/lib/languages/css";
import diff from "highlight.js/lib/languages/diff";
import go from "highlight.js/lib/languages/go";
import java from "highlight.js/lib/languages/java";
import json from "highlight.js/lib/languages/json";
import python from "highlight.js/lib/languages/python";
import rust from "highlight.js/lib/languages/rust";
import sql from "highlight.js/lib/languages/sql";
import typescript from "highlight.js/lib/languages/typescript";
import xml from "highlight.js/lib/languages/xml";
import yaml from "highlight.js/lib/languages/yaml";
import { files, names } from "virtual:languages";

import { once } from "../../ui/once.ts";
import { hcl } from "./hcl.ts";

const FIRST = { bash, cpp, css, diff, go, hcl, java, json, python, rust, sql, typescript, xml, yaml };

/** Languages by all their names, including common names that highlight.js does not know. */
const NAMES = new Map<string, string>(
  Object.entries({
    ...names,
    ...{ js: "typescript", jsx: "typescript", "javascript": "typescript", mjs: "typescript", cjs: "typescript", mts: "typescript", cts: "typescript" },
    ...{ shell: "bash", console: "bash", "shell-session": "bash", shellsession: "bash", shellscript: "bash", fish: "bash", ksh: "bash", env: "bash", dotenv: "bash" },
    ...{ c: "cpp", h: "cpp", cuda: "cpp", cu: "cpp", jsonc: "json", json5: "json", jsonl: "json", ndjson: "json", ipynb: "json" },
    ...{ vue: "xml", svelte: "xml", astro: "xml", html5: "xml", htm: "xml", postgres: "sql", postgresql: "sql", mysql: "sql", sqlite: "sql", plsql: "sql", tsql: "sql" },
    ...{ terraform: "hcl", tf: "hcl", tfvars: "hcl", python3: "python", pyi: "python", "objective-c": "objectivec", "objective-c++": "objectivec", objectivecpp: "objectivec", patch: "diff" },
    ...{ vb: "vbnet", "visual-basic": "vbnet", "f#": "fsharp", viml: "vim", vimscript: "vim", rlang: "r", wat: "wasm", wast: "wasm", cmd: "dos", batch: "dos", conf: "ini", cfg: "ini", editorconfig: "ini" },
    hcl: "hcl",
  }),
);

for (const [name, language] of Object.entries(FIRST)) hljs.registerLanguage(name, language);

let arrived = (): void => undefined;

/** Calls back after each loaded language. */
export function onArrival(call: () => void): void {
  arrived = call;
}

/** Returns the coloured code as HTML with all text escaped; null if the language is unknown or not loaded yet. */
export function coloured(code: string, language: string): string | null {
  const name = NAMES.get(language);
  if (!name) return null;
  if (!hljs.getLanguage(name)) {
    fetchGrammar(name);
    return null;
  }
  return hljs.highlight(code, { language: name, ignoreIllegals: true }).value;
}

/**
 * The functions that load grammars, by language. After a failure, code stays plain until the next code block in that
 * language tries again.
 */
const grammars = new Map<string, () => void>();

function fetchGrammar(name: string): void {
  const load = files[name];
  if (!load) return;
  const bring = grammars.get(name) ?? once(async () => {
    hljs.registerLanguage(name, (await load()).default);
    arrived();
  });
  grammars.set(name, bring);
  bring();
}
