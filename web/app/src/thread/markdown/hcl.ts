/**
 * Terraform's language (https://developer.hashicorp.com/terraform/language/syntax), which highlight.js does not
 * support.
 */

import type { HLJSApi, Language, Mode } from "highlight.js";

const WORDS = {
  keyword: "resource data variable output module provider terraform locals moved import check removed for in if else dynamic",
  literal: "true false null",
};

export function hcl(hljs: HLJSApi): Language {
  const number: Mode = { scope: "number", begin: /\b\d+(?:\.\d+)?(?:[eE][+-]?\d+)?\b/ };
  const inserted: Mode = { scope: "subst", begin: /[$%]\{/, end: /\}/, keywords: WORDS };
  const string: Mode = { scope: "string", begin: /"/, end: /"/, contains: [hljs.BACKSLASH_ESCAPE, inserted] };
  const text = hljs.END_SAME_AS_BEGIN({ scope: "string", begin: /<<-?(\w+)/, end: /^\s*(\w+)$/, contains: [inserted] });
  const call: Mode = { scope: "built_in", begin: /\b[a-z_]\w*(?=\()/ };
  inserted.contains = [string, call, number];
  return {
    name: "HCL",
    keywords: WORDS,
    contains: [hljs.HASH_COMMENT_MODE, hljs.C_LINE_COMMENT_MODE, hljs.C_BLOCK_COMMENT_MODE, string, text, { scope: "attr", begin: /^\s*[\w-]+(?=\s*=[^=])/ }, call, number],
  };
}
