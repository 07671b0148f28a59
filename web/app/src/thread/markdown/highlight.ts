/**
 * Colours code: comments, strings, numbers, keywords and names, by rules that most languages share.
 *
 * It reads words and no grammar, and now and then it is wrong, which costs a colour. For that it is 2 kB where a
 * highlighter with grammars for a dozen languages is 25, a third of what all of the page may weigh. Pure; everything that
 * comes out is escaped.
 */

import { escaped } from "./render.ts";

/** Beyond it colouring takes longer than a frame. */
const MAX_CHARACTERS = 50_000;

type Kind = "comment" | "string" | "number" | "keyword" | "name" | "type" | "key" | "added" | "removed";

/** In each: what begins where, the first that fits wins. Words are looked up, or are names where a bracket follows. */
interface Language {
  readonly rules: readonly (readonly [Kind, string])[];
  readonly keywords: ReadonlySet<string>;
  /** Of keywords, where their case says nothing. */
  readonly isCaseless?: boolean;
}

const HASH = ["comment", "#.*"] as const;
const SLASHES = ["comment", "//.*|/\\*[^]*?(?:\\*/|(?![^]))"] as const;
const QUOTED = ["string", "\"(?:\\\\.|[^\"\\\\\\n])*\"?|'(?:\\\\.|[^'\\\\\\n])*'?"] as const;
const TICKED = ["string", "`(?:\\\\.|[^`\\\\])*`?"] as const;
const DECORATED = ["key", "@[\\w.]+"] as const;

const words = (text: string) => new Set(text.split(" "));

const C_LIKE =
  "auto bool break case catch char class const constexpr continue default delete do double else enum extern false float for if inline int long namespace new null nullptr operator private protected public return short signed sizeof static struct switch template this throw true try typedef union unsigned using virtual void volatile while";

const LANGUAGES: Record<string, Language> = {
  bash: {
    rules: [["comment", "(?<![\\w$])#.*"], ["string", '"(?:\\\\.|[^"\\\\])*"?|\'[^\']*\'?'], ["key", "\\$\\{?\\w+\\}?|(?<=\\s)--?[\\w-]+"]],
    keywords: words("if then else elif fi for while until do done case esac in function return export local set cd echo exit source sudo"),
  },
  cpp: { rules: [SLASHES, ["key", "#\\s*\\w+"], QUOTED], keywords: words(C_LIKE) },
  css: { rules: [["comment", "/\\*[^]*?(?:\\*/|(?![^]))"], QUOTED, ["keyword", "@[\\w-]+"], ["key", "[\\w-]+(?=\\s*:)"], ["number", "#[\\da-fA-F]{3,8}\\b"], ["type", "[.#][\\w-]+"]], keywords: new Set() },
  diff: { rules: [["comment", "^(?:@@|diff|index|---|\\+\\+\\+).*"], ["added", "^\\+.*"], ["removed", "^-.*"]], keywords: new Set() },
  go: {
    rules: [SLASHES, QUOTED, TICKED],
    keywords: words("break case chan const continue default defer else fallthrough false for func go goto if import interface map nil package range return select struct switch true type var string int bool byte error"),
  },
  java: {
    rules: [SLASHES, DECORATED, QUOTED],
    keywords: words(`${C_LIKE} abstract boolean byte extends final finally implements import instanceof interface package super synchronized throws var val fun when object override in is`),
  },
  json: { rules: [SLASHES, ["key", '"(?:\\\\.|[^"\\\\\\n])*"(?=\\s*:)'], QUOTED], keywords: words("true false null") },
  python: {
    rules: [HASH, ["string", "[rbfRBF]{0,2}(?:\"\"\"[^]*?(?:\"\"\"|(?![^]))|'''[^]*?(?:'''|(?![^])))"], ["string", `[rbfRBF]{0,2}(?:${QUOTED[1]})`], DECORATED],
    keywords: words("and as assert async await break case class continue def del elif else except False finally for from global if import in is lambda match None nonlocal not or pass raise return self True try while with yield"),
  },
  rust: {
    rules: [SLASHES, ["key", "#!?\\[[^\\]]*\\]"], ["string", '"(?:\\\\.|[^"\\\\])*"?'], ["key", "'\\w+\\b(?!')"], QUOTED],
    keywords: words("as async await break const continue crate dyn else enum extern false fn for if impl in let loop match mod move mut pub ref return self Self static struct super trait true type unsafe use where while str u8 u16 u32 u64 usize i32 i64 bool"),
  },
  sql: {
    rules: [["comment", "--.*|/\\*[^]*?(?:\\*/|(?![^]))"], QUOTED],
    keywords: words("add all alter and as asc begin between by case check commit constraint create default delete desc distinct drop else end exists foreign from full group having if in index inner insert into is join key left like limit not null offset on or order outer primary references returning right rollback select set table then union unique update using values view when where with"),
    isCaseless: true,
  },
  typescript: {
    rules: [SLASHES, QUOTED, TICKED, DECORATED, ["string", "(?<=[=(,:[!&|?{};\\n]\\s*)/(?![*/])(?:\\\\.|\\[(?:\\\\.|[^\\]\\n])*\\]|[^/\\\\\\n[])+/[a-z]*"]],
    keywords: words("abstract any as async await boolean break case catch class const continue debugger declare default delete do else enum export extends false finally for from function get if implements import in infer instanceof interface keyof let namespace never new null number of package private protected public readonly return satisfies set static string super switch this throw true try type typeof undefined unknown var void while with yield"),
  },
  xml: { rules: [["comment", "<!--[^]*?(?:-->|(?![^]))"], ["keyword", "</?[\\w:.-]+|/?>"], ["string", '"[^"]*"?|\'[^\']*\'(?=[\\s>/])'], ["key", "[\\w:.-]+(?==)"]], keywords: new Set() },
  yaml: { rules: [["comment", "(?<![^\\s])#.*"], ["key", "^\\s*(?:- +)?[\\w./-]+(?=\\s*:(?:\\s|(?![^])))|^\\[[^\\]\\n]*\\]|^\\s*[\\w.-]+(?= *=)"], QUOTED], keywords: words("true false null yes no") },
};

const ALIASES: Record<string, string> = {
  c: "cpp", "c++": "cpp", cc: "cpp", h: "cpp", hpp: "cpp", "c#": "java", cs: "java", csharp: "java", console: "bash", golang: "go", html: "xml", ini: "yaml", javascript: "typescript", js: "typescript", json5: "json", jsonc: "json", jsx: "typescript", kotlin: "java", kt: "java", mjs: "typescript", patch: "diff", php: "java", py: "python", python3: "python", rs: "rust", scss: "css", sh: "bash", shell: "bash", svg: "xml", swift: "java", toml: "yaml", ts: "typescript", tsx: "typescript", yml: "yaml", zsh: "bash",
};

const NUMBER = "\\b(?:0[xXbBoO][\\da-fA-F_]+|\\d[\\d_]*(?:\\.\\d+)?(?:[eE][+-]?\\d+)?)\\w*";

const compiled = new Map<Language, RegExp>();

function expressionOf(language: Language): RegExp {
  let found = compiled.get(language);
  if (!found) {
    const rules = [...language.rules.map((rule) => rule[1]), NUMBER, "[A-Za-z_$][\\w$]*"];
    compiled.set(language, (found = new RegExp(rules.map((rule) => `(${rule})`).join("|"), "gm")));
  }
  return found;
}

/** HTML of the code; null for a language that is not known here, and for what is too long. */
export function coloured(code: string, name: string): string | null {
  const language = LANGUAGES[ALIASES[name] ?? name];
  if (!language || code.length > MAX_CHARACTERS) return null;
  let html = "";
  let at = 0;
  for (const match of code.matchAll(expressionOf(language))) {
    const [text] = match;
    if (!text) continue;
    const kind = kindOf(language, match, code);
    html += escaped(code.slice(at, match.index)) + (kind ? `<span class="t-${kind}">${escaped(text)}</span>` : escaped(text));
    at = match.index + text.length;
  }
  return html + escaped(code.slice(at));
}

function kindOf(language: Language, match: RegExpMatchArray, code: string): Kind | null {
  const rule = language.rules.findIndex((_, at) => match[at + 1] !== undefined);
  if (rule >= 0) return language.rules[rule]?.[0] ?? null;
  if (match[language.rules.length + 1] !== undefined) return "number";
  const word = match[0];
  if (language.keywords.has(language.isCaseless ? word.toLowerCase() : word)) return "keyword";
  if (!language.keywords.size) return null;
  if (/^\s{0,2}\(/.test(code.slice((match.index ?? 0) + word.length, (match.index ?? 0) + word.length + 3))) return "name";
  return /^[A-Z]\w*[a-z]/.test(word) ? "type" : null;
}
