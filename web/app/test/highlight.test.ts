/** Code in colours: everything is there, escaped, and coloured as far as words tell. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { coloured } from "../src/thread/markdown/highlight.ts";

/** `kind:text` of every coloured piece. */
function pieces(code: string, language: string): string[] {
  return [...(coloured(code, language) ?? "").matchAll(/<span class="t-(\w+)">(.*?)<\/span>/gs)].map(([, kind, text]) => `${kind}:${text}`);
}

function plain(html: string): string {
  const entities: Record<string, string> = { amp: "&", lt: "<", gt: ">", quot: '"', "#39": "'" };
  return html.replace(/<[^>]*>/g, "").replace(/&([^;]+);/g, (_, name: string) => entities[name] ?? "?");
}

test("what is written stays what it is, in every language", () => {
  const code = "# a <b> \"c\" 'd' // e /* f\n@g h(1.5e3) `i` -- j <!-- k\n+l\n- m: \"n\" $o '''p\n";
  for (const language of "bash cpp css diff go java json python rust sql typescript xml yaml js html toml c++".split(" ")) {
    const html = coloured(code, language);
    assert.ok(html !== null, language);
    assert.equal(plain(html), code, language);
    assert.ok(!/<(?!\/?span)/.test(html), language);
  }
  assert.equal(coloured("x", "brainfuck"), null);
  assert.equal(coloured("x", "constructor"), null);
});

test("words are keywords, names and types", () => {
  assert.deepEqual(pieces("@cached\ndef f(x: Lease) -> int:  # so\n    return 'a' + 0x1F", "py"), [
    "key:@cached", "keyword:def", "name:f", "type:Lease", "comment:# so", "keyword:return", "string:&#39;a&#39;", "number:0x1F",
  ]);
  assert.deepEqual(pieces("const a = /x\\/y/g; // b", "js"), ["keyword:const", "string:/x\\/y/g", "comment:// b"]);
  assert.deepEqual(pieces("Select COUNT(*) FROM t -- all", "sql"), ["keyword:Select", "name:COUNT", "keyword:FROM", "comment:-- all"]);
  assert.deepEqual(pieces('{"a": "b", "c": null}', "json"), ["key:&quot;a&quot;", "string:&quot;b&quot;", "key:&quot;c&quot;", "keyword:null"]);
  assert.deepEqual(pieces("@@ 1 @@\n-a\n+b\n c", "diff"), ["comment:@@ 1 @@", "removed:-a", "added:+b"]);
  assert.deepEqual(pieces('<a href="x">y</a>', "html"), ["keyword:&lt;a", "key:href", "string:&quot;x&quot;", "keyword:&gt;", "keyword:&lt;/a", "keyword:&gt;"]);
  assert.deepEqual(pieces("name: b # c", "yaml"), ["key:name", "comment:# c"]);
});

test("what is open at the end is coloured to the end", () => {
  assert.deepEqual(pieces("a /* b\nc", "ts"), ["comment:/* b\nc"]);
  assert.deepEqual(pieces('"""a\nb', "python"), ["string:&quot;&quot;&quot;a\nb"]);
});
