/** Tests which dollar signs and brackets are read as formulas, and which as money, shell variables or words. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { Lexer } from "marked";

import { inlines } from "../src/thread/markdown/grammar.ts";
import { BAR, covered, mathBlockAt, withBars, withoutBegun } from "../src/thread/markdown/math.ts";
import { toTrees } from "../src/thread/markdown/render.ts";
import { settled, Splitter } from "../src/thread/markdown/split.ts";
import type { Tree } from "../src/thread/markdown/tree.ts";

/** The formulas of a text, in order; display formulas are in brackets. */
function formulas(text: string): string[] {
  return found(toTrees(text));
}

function found(trees: readonly Tree[]): string[] {
  return trees.flatMap((tree) => {
    if (typeof tree === "string") return [];
    const kind = tree.attributes["data-math"];
    return kind ? [kind === "display" ? `[${String(tree.children[0])}]` : String(tree.children[0])] : found(tree.children);
  });
}

const FORMULAS: Record<string, string[]> = {
  "costs $5, and $x$": ["x"],
  "so $x$, ($y$) and **$z$**; $a_1$ and $b_1$": ["x", "y", "z", "a_1", "b_1"],
  "the $n$th term, two $x$s, 设$x$为": ["n", "x", "x"],
  "$\\$5$ and $5 + 3 = 8$ and $2^{10}$": ["\\$5", "5 + 3 = 8", "2^{10}"],
  "\\(a\\) and \\[b\\] and $$c$$ in a line": ["a", "[b]", "[c]"],
  "a *b $x*y$ c*": ["x*y"],
  "$$\na\n\nb\n$$": ["[a\n\nb]"],
  "$$ a \\\\\n b $$": ["[a \\\\\n b]"],
  "text\n\\[\nx\n\\]\nmore": ["[x]"],
  "$$x$$.": ["[x.]"],
  "1. one:\n   $$\n   x\n   $$\n2. two $y$": ["[x]", "y"],
  "> $$\n> x\n> $$": ["[x]"],
  "| $|x|$ | $\\|y\\|$ |\n| - | - |\n| \\(a|b\\) | `$c` |": ["|x|", "\\|y\\|", "a|b"],
  "<details>\n\n$x$\n</details>": ["x"],
  "[$x$](https://a.example/$y$z) and https://a.example/?a=$b$ end": ["x"],
};

for (const [text, found] of Object.entries(FORMULAS)) {
  test(`formulas: ${JSON.stringify(text)}`, () => assert.deepEqual(formulas(text), found));
}

const WORDS = [
  "$5 and $6",
  "It costs $5, or $6.50 (US$7), not 8$.",
  "$10-$20, $10/$20, $1,$2 and $3–$4k",
  "from $5 (about 4$) or so",
  "costs $5 or 10$ a month",
  "$HOME, $PATH:$HOME and $HOME/$USER",
  "${HOME}/${USER} and $(pwd)$(ls)",
  "`$a` and `$b`, ``$c$``",
  "US$ and CA$, ($) and ($), '$' or \"$\"",
  "\\$x\\$ and a$b$c and 5$x$",
  "$ x $ and $ y$",
  "a hotel for $$ to $$$ and $$$$",
  "$(\"#a\").b($(c)) and $.ajax",
  "\\[link\\](https://a.example) \\\\(x\\\\)",
  "$$\n\n$$",
  "    $x$",
  "```sh\necho $a$\n```",
  "one $ two\n\nthree$ four",
  "$never closed",
];

for (const text of WORDS) {
  test(`words: ${JSON.stringify(text)}`, () => assert.deepEqual(formulas(text), []));
}

test("a table keeps its cells when formulas hold bars", () => {
  const [table] = new Lexer(inlines(() => false)).lex("| $|x|$ | b |\n| --- | --- |\n| $5 | $6 |\n| `a` | \\(|y|\\) |\n\nafter");
  assert.ok(table?.type === "table");
  assert.deepEqual(table.header.map((cell: { text: string }) => cell.text), [`$${BAR}x${BAR}$`, "b"]);
  assert.deepEqual(table.rows.map((row: { text: string }[]) => row.map((cell) => cell.text)), [["$5", "$6"], ["`a`", `\\(${BAR}y${BAR}\\)`]]);
  assert.ok(table.raw.startsWith("| $|x|$ | b |") && table.raw.includes("\\(|y|\\) |"));
});

test("a block of a formula is open until its end has come", () => {
  assert.deepEqual(mathBlockAt("$$\nx\n"), { raw: "$$\nx\n", tex: "\nx\n", isClosed: false });
  assert.deepEqual(mathBlockAt("\\[x\\]\nafter"), { raw: "\\[x\\]\n", tex: "x", isClosed: true });
  assert.equal(mathBlockAt("$$ x\n\ny $$"), null);
  assert.equal(mathBlockAt("$$ x $$ y"), null);
  assert.equal(mathBlockAt(`$$\n${"x".repeat(6_000)}`), null);
});

test("a formula that has only begun is held back, money is not", () => {
  for (const text of ["$", "$x", "$x^", "$\\frac{a", "$x$", "\\(a", "\\", "$$a", "\\[a", "$2^{", "$12"]) {
    assert.equal(withoutBegun(`It is ${text}`), "It is ", text);
  }
  for (const text of ["$5 and", "$5 and $6 or", "$x$ and", "`$x", "$$ to", "$HOME is where the heart is, and so on and so on, for ever and ever", "\\(a\\)"]) {
    assert.equal(withoutBegun(`It is ${text}`), `It is ${text}`);
  }
});

test("what has only begun of folded parts and footnotes does not flicker either", () => {
  assert.equal(settled("Text <deta"), "Text ");
  assert.equal(settled("Text\n</summ"), "Text\n");
  assert.equal(settled("a <b and c"), "a <b and c");
  assert.equal(settled("Text.[^1"), "Text.");
  assert.equal(settled("Text.\n[^1]"), "Text.\n");
  assert.equal(settled("Text.[^1]"), "Text.[^1]");
});

/** Returns the CPU time of `work` in milliseconds, which does not include other processes. */
function effort(work: () => void): number {
  const before = process.cpuUsage().user;
  work();
  return (process.cpuUsage().user - before) / 1_000;
}

test("four times the text with many signs takes about four times the time", () => {
  const reads: Record<string, (text: string) => void> = { covered, withBars, withoutBegun, settled, toTrees, split: (text) => void new Splitter().take(text) };
  for (const sign of ["$ ", "$1 ", "\\(a ", "\\[\n", "\\[a\n\n", "$$x\n", "[^a]"]) {
    for (const [name, read] of Object.entries(reads)) {
      const [once, more] = [1_000, 4_000].map((count) => effort(() => read(sign.repeat(count)))) as [number, number];
      // A quadratic function takes sixteen times as long; the constant allows for garbage collection.
      assert.ok(more <= 8 * once + 60, `${name} of ${JSON.stringify(sign)}: ${once} ms, then ${more} ms`);
    }
  }
});
