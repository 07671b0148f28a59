/**
 * Tests that a text that arrives in pieces gives the same blocks as the whole text, and that finished blocks do not
 * change.
 */

import assert from "node:assert/strict";
import { test } from "node:test";

import { noteParts } from "../src/thread/markdown/grammar.ts";
import { fenceOf, settled, Splitter } from "../src/thread/markdown/split.ts";

const TEXTS = [
  "# Title\n\nA paragraph\nof two lines.\n\n- one\n- two\n  - inner\n\n  more of two\n\n- three\n\nAfter.\n",
  "Before\n1.5 apples\n\n1. first\n2. second\n\n   still second\n\n10. tenth\n",
  "Para\n---\nnot a heading\n\n***\n\n> quote\nlazy\n\n> another\n",
  "```js\nconst a = 1;\n\n\n# no heading\n```\nafter\n~~~\nopen ``` still\n",
  "Text\n```inline```\nmore\n\n    indented\n\n    code\n\nend\n",
  "| a | b |\n| - | - |\n| 1 | 2 |\nnot a row?\n\nafter | the table\n",
  "See [one][1] and [two][2].\n\n[1]: https://a.example\n[2]: https://b.example\n  'title'\n\nLast.\n",
  "<div>\nraw\n\nhtml\n</div>\n\n<!-- a\n\ncomment -->\n\nend\r\nof\rit\r\n",
  "- [ ] task\n- [x] done\n* other list\n+ third\n\n\n\n\nfar away\n",
  "Before\n$$\nx\n\n= y\n$$\nafter $$a\nb$$ end\n\n$$ c \\\\\n- d\n$$\n\n---\n",
  "$$ no formula\n- one\n- two\n\nText\n$$ neither\n---\n\n$$\nnever\n\nclosed $5 and $6\n\nend",
  "Text\n\\[\nx\n\\]\n\\[ y \\] after\nmore\n\\[ open\n# Heading\n\nend\n$$z$$.\n===\n",
  "One.[^1] Two.[^b]\n[^1]: First\nstill first\n\n    more of first\n\nBetween.\n\n[^b]: - a\n[^c]: ```\n    x\n    ```\n---\nEnd\n",
  "<details>\n<summary>A</summary>\n\nText\n\n```html\n</details>\n```\n\n<details open>\n- x\n</details>\n\n# B\n</details>\nafter\n\nText\n<details>\n\nopen\n\n[^x]: y\n",
  "| a | b |\n| - | - |\n| $|x|$ | \\(|y|\\) |\n| $5 | $6 |\n$$\nx\n$$\n\n| $|h|$ |\n| - |\n[^t]: note\n",
  "- item\n\n  $$\n  x\n  $$\n- [^1]\n  <details>\n\n  y\n  </details>\n\n> $$\n> q\n> $$\n\n[^1]: note\n- z\n",
  "Setext\n===\n\nTwo\nlines\n---\n#hashtag\n# Heading\ntext directly\n",
];

/** Random numbers from a seed, so that a failure can be repeated. */
function chance(seed: number): () => number {
  let now = seed;
  return () => ((now = (now * 1_103_515_245 + 12_345) % 2 ** 31) / 2 ** 31);
}

for (const [number, text] of TEXTS.entries()) {
  test(`text ${number} in pieces gives the blocks of the whole`, () => {
    const whole = new Splitter().take(text);
    for (let seed = 1; seed <= 50; seed++) {
      const draw = chance(seed);
      const splitter = new Splitter();
      let split = splitter.take("");
      for (let at = 0; at < text.length; ) {
        at = Math.min(text.length, at + 1 + Math.floor(draw() * 9));
        split = splitter.take(text.slice(0, at));
      }
      assert.deepEqual(split, whole, `seed ${seed}`);
    }
  });
}

test("blocks are parted where the whole text has them parted", () => {
  const { blocks, definitions } = new Splitter().take("# A\n\nb\nc\n\n```\nd\n\ne\n```\n\n[x]: /y\n\nf");
  assert.deepEqual(blocks.map((raw) => raw.trim()), ["# A", "b\nc", "```\nd\n\ne\n```", "f"]);
  assert.equal(definitions.trim(), "[x]: /y");
});

test("a finished block is the same while the text grows", () => {
  const splitter = new Splitter();
  const first = splitter.take("One.\n\nTwo.\n\nThr").blocks[0];
  assert.equal(splitter.take("One.\n\nTwo.\n\nThree, and a long end.").blocks[0], first);
});

test("a text that begins otherwise is split anew", () => {
  const splitter = new Splitter();
  splitter.take("One.\n\nTwo.\n\nThree.");
  assert.deepEqual(splitter.take("Other.").blocks, ["Other."]);
});

test("a long text costs no more for each piece than its last block", () => {
  const splitter = new Splitter();
  const paragraph = "Words and words and words of a paragraph.\n\n";
  let text = "";
  for (let at = 0; at < 2_000; at++) splitter.take((text += paragraph));
  assert.equal(splitter.take(text).blocks.length, 2_000); // quadratic parsing would not come to an end here
});

test("formulas, folded parts and footnotes are blocks of their own", () => {
  const { blocks, notes, labels } = new Splitter().take(
    "A [^1]\n$$\na\n\nb\n$$\nB `[^no]`\n\n<details>\n<summary>S</summary>\n\n`</details>`\n\nc[^x]\n</details>\nC\n\n[^1]: one\n\n    two\n\nD\n",
  );
  assert.deepEqual(blocks.map((raw) => raw.trim()), ["A [^1]", "$$\na\n\nb\n$$", "B `[^no]`", "<details>\n<summary>S</summary>\n\n`</details>`\n\nc[^x]\n</details>", "C", "D"]);
  assert.deepEqual(notes.map(noteParts), [{ label: "1", text: "one\n\ntwo" }]);
  assert.deepEqual(labels, [["1"], [], [], ["x"], [], []]);
});

test("random pieces of Markdown in random order keep the law", () => {
  const draw = chance(7);
  const lines = TEXTS.flatMap((text) => text.split(/(?<=\n)/));
  for (let round = 0; round < 400; round++) {
    let text = "";
    while (text.length < 160) text += lines[Math.floor(draw() * lines.length)];
    const splitter = new Splitter();
    for (let at = 0; at < text.length; at += 1 + Math.floor(draw() * 7)) splitter.take(text.slice(0, at));
    assert.deepEqual(splitter.take(text), new Splitter().take(text), JSON.stringify(text));
  }
});

test("a fence is taken apart, open or closed", () => {
  assert.deepEqual(fenceOf("```Python title=x\nprint(1)\n```\n"), { language: "python", code: "print(1)", isClosed: true });
  assert.deepEqual(fenceOf("```\na\n``"), { language: "", code: "a\n``", isClosed: false });
  assert.deepEqual(fenceOf("~~~~c++\n~~~\n"), { language: "c++", code: "~~~", isClosed: false });
  assert.deepEqual(fenceOf("```"), { language: "", code: "", isClosed: false });
  assert.deepEqual(fenceOf("```js\n```"), { language: "js", code: "", isClosed: true });
  assert.equal(fenceOf("```a``` b"), null);
  assert.equal(fenceOf("text"), null);
});

test("what has only begun does not flicker", () => {
  assert.equal(settled("Here are:\n-"), "Here are:\n");
  assert.equal(settled("Here are:\n1."), "Here are:\n");
  assert.equal(settled("some **bold"), "some **bold**");
  assert.equal(settled("some **"), "some ");
  assert.equal(settled("some **bold** and"), "some **bold** and");
  assert.equal(settled("call `f(x"), "call `f(x`");
  assert.equal(settled("see [the page](https://exa"), "see the page");
  assert.equal(settled("see ![a cat](https://exa"), "see ");
  assert.equal(settled("a [x] b"), "a [x] b");
  assert.equal(settled("2 * 3"), "2 * 3");
});
