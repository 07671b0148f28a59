/**
 * The languages whose code is coloured, loaded when the first code is shown. TypeScript's grammar reads JavaScript too,
 * and costs as much as that.
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

const ALL = { bash, cpp, css, diff, go, java, json, python, rust, sql, typescript, xml, yaml };

for (const [name, language] of Object.entries(ALL)) hljs.registerLanguage(name, language);
hljs.registerAliases(["js", "jsx", "javascript", "mjs"], { languageName: "typescript" });
hljs.registerAliases(["shell", "console", "sh", "zsh"], { languageName: "bash" });
hljs.registerAliases(["c", "h"], { languageName: "cpp" });
hljs.registerAliases(["jsonc", "json5"], { languageName: "json" });

/** HTML of the code, everything in it escaped; null for a language that is not known here. */
export function coloured(code: string, language: string): string | null {
  return hljs.getLanguage(language) ? hljs.highlight(code, { language, ignoreIllegals: true }).value : null;
}
