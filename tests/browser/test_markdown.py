"""Markdown in answers: footnotes, folded parts, code in every language, and hostile content."""

import re

import pytest
from playwright.sync_api import expect

from tests.browser.answers import answer, given, layout_shift, stream, watch_shifts
from tests.browser.axe import violations
from tests.browser.harness import LOOKS, Harness, People, answered, messages

CONFIG = """
[models]
default = "demo/echo?rate=0"
"""

NOTED = """A claim.[^1] Another[^why], and the first again.[^1] No note: [^none], `[^1]`, [^a-z].

A second paragraph[^long].

[^1]: The paper of **1989**.
[^why]: See [the docs](https://a.example),
    on two lines.
[^long]: First.

    Second with `code`.
[^unused]: Nobody refers to it.
"""


def test_footnotes_are_numbered_and_lead_to_and_fro_within_their_own_answer(
    open_page: People, server: Harness, chat_id: str
) -> None:
    given(server, chat_id, NOTED, NOTED)
    page = open_page(f"/c/{chat_id}")
    address = page.url
    first, second = answer(page, 0), answer(page, 1)
    for each in (first, second):
        references = each.get_by_role("link", name=re.compile("^Footnote"))
        assert references.all_inner_texts() == ["1", "2", "1", "3"]
        notes = each.get_by_role("region", name="Footnotes").get_by_role("listitem")
        expect(notes).to_have_count(3)
        expect(notes.nth(0)).to_contain_text("The paper of 1989.")
        expect(notes.nth(2)).to_contain_text("Second with code.")
        expect(each).to_contain_text("No note: [^none], [^1], [^a-z].")
        expect(each).not_to_contain_text("Nobody refers")
    ids: list[str] = page.evaluate("[...document.querySelectorAll('main [id]')].map((one) => one.id)")
    assert len(ids) == len(set(ids))
    open_page.shoot_looks(page, "footnotes", at=second.get_by_role("region", name="Footnotes"))
    second.get_by_role("link", name="Footnote 2").click()
    note = second.get_by_role("listitem").nth(1)
    expect(note).to_be_focused()
    note.get_by_role("link", name="Back to reference 2").click()
    expect(second.get_by_role("link", name="Footnote 2")).to_be_focused()
    assert page.url == address
    assert len(page.context.pages) == 1


FOLDED = """Before it.

<details>
<summary>More about <b>leases</b> and $x^2$</summary>

A lease has **an end**:

- who holds it

```rust
fn main() {}
```

<details open><summary>Inner</summary>

$$
y = 1
$$

</details>

`</details>` is a word here.

</details>

After it.

1. A list
   <details>
   <summary>Within</summary>

   *Hidden*
   </details>
"""


def test_folded_parts_hold_markdown_and_stay_as_the_reader_left_them(
    open_page: People, server: Harness, chat_id: str
) -> None:
    page = open_page(f"/c/{chat_id}", viewport={"width": 1100, "height": 1000})
    stream(server, chat_id, f"{FOLDED}\n{'And more words. ' * 120}", 60)
    folded = messages(page).nth(1).locator("details")
    folded.first.locator("summary").first.click()
    expect(folded.first).to_have_attribute("open", "")
    expect(folded).to_have_count(3)
    folded.nth(2).locator("summary").click()
    answered(page)
    expect(folded.first).to_have_attribute("open", "")
    expect(folded.nth(1)).to_have_attribute("open", "")
    expect(folded.nth(2)).to_have_attribute("open", "")
    expect(folded.first.locator("summary").first).to_contain_text("More about leases")
    expect(folded.first.locator("strong")).to_have_text("an end")
    expect(folded.first.get_by_role("figure")).to_contain_text("fn main() {}")
    expect(folded.first.locator(".katex-html")).to_have_count(2)
    expect(folded.first).to_contain_text("</details> is a word here.")
    expect(folded.first).not_to_contain_text("After it.")
    expect(folded.nth(2).locator("em")).to_be_visible()
    messages(page).nth(1).evaluate("said => said.scrollIntoView()")
    open_page.shoot_looks(page, "folded-parts")


CODE = {
    "c": "int main(void) { return 0; }",
    "c++": "auto x = std::vector<int>{};",
    "c#": "public class A { }",
    "java": "public class A { }",
    "kotlin": "fun main() = println(1)",
    "swift": "let x: Int = 1",
    "go": "func main() {}",
    "rust": "fn main() {}",
    "ruby": "def a; end",
    "php": "<?php echo 1; ?>",
    "perl": "my $x = 1;",
    "lua": "local x = 1",
    "r": "x <- function(a) TRUE",
    "julia": "function f(x) end",
    "matlab": "function y = f(x)\nend",
    "scala": "object A { val x = 1 }",
    "haskell": "module Main where",
    "elixir": "defmodule A do end",
    "erlang": "-module(a).",
    "clojure": "(defn f [x] x)",
    "dart": "void main() { final x = 1; }",
    "objective-c": "@interface A : NSObject\n@end",
    "powershell": "Get-ChildItem -Path $HOME",
    "bat": "@echo off",
    "dockerfile": "FROM python:3.12",
    "nginx": "server { listen 80; }",
    "ini": "[a]\nb = 1",
    "toml": "[a]\nb = 1",
    "makefile": "all: a\n\techo $(X)",
    "cmake": "project(a)",
    "protobuf": "message A { string b = 1; }",
    "graphql": "query { a }",
    "latex": "\\section{A}",
    "markdown": "# A",
    "vim": "set number",
    "terraform": 'resource "a" "b" {\n  c = 1\n}',
    "diff": "+ a\n- b",
    "http": "GET / HTTP/1.1\nHost: a",
    "json": '{"a": 1}',
    "yaml": "a: 1",
    "xml": "<a b='c'/>",
    "html": "<p class='a'>b</p>",
    "css": "a { color: red }",
    "scss": "$a: red; a { color: $a }",
    "less": "@a: red;",
    "sql": "SELECT 1",
    "bash": "echo $HOME",
    "sh": "if true; then echo 1; fi",
    "typescript": "const x: number = 1",
    "tsx": "const x = <a b={1} />",
    "jsx": "const x = <a b={1} />",
    "js": "const x = 1",
    "python": "def f(): pass",
    "fsharp": "let x = 1",
    "ocaml": "let x = 1",
    "groovy": "def x = 1",
    "verilog": "module a; endmodule",
    "x86asm": "mov eax, 1",
    "vue": "<template><p>a</p></template>",
    "ps1": "Write-Host $x",
    "jsonc": '{"a": 1}',
}


def test_code_of_every_language_that_people_paste_is_coloured_each_from_a_file_of_its_own(
    open_page: People, server: Harness, chat_id: str
) -> None:
    asked = open_page.requests()
    given(server, chat_id, "```python\ndef f(): pass\n```", "\n".join(f"```{k}\n{v}\n```\n" for k, v in CODE.items()))
    page = open_page(f"/c/{chat_id}")
    figures = answer(page, 1).get_by_role("figure")
    expect(figures).to_have_count(len(CODE))
    for number, (language, code) in enumerate(CODE.items()):
        expect(figures.nth(number).locator("code")).to_have_text(code)
        expect(figures.nth(number).locator("code span").first, language).to_be_attached()
    assert any("/kotlin-" in url for url in asked)
    assert not any("/ada-" in url or "/mathematica-" in url for url in asked)
    open_page.shoot_looks(page, "languages")


def test_code_of_the_languages_seen_most_comes_as_one_file(open_page: People, server: Harness, chat_id: str) -> None:
    asked = open_page.requests()
    given(server, chat_id, "```python\ndef f(): pass\n```\n\n```nosuchlanguage\nx\n```")
    page = open_page(f"/c/{chat_id}")
    expect(answer(page).locator("code span").first).to_be_attached()
    assert len([url for url in asked if "/languages-" in url]) == 1
    assert not [url for url in asked if re.search(r"/(?:bash|python|css|xml|yaml|json)-[\w-]{8}\.js$", url)]
    names = {url.rpartition("/")[2].rpartition("-")[0] for url in asked if url.endswith(".js")}
    assert len(names) <= 8, names  # no separate file for each common language


EVIL = '"><img src=x onerror=window.owned=1><script>window.owned=1</script>'

NAME = '"><img/src=x/onerror=window.owned=1>'

HOSTILE = f"""
<details open onclick=window.owned=1 ontoggle=window.owned=1 id=app style="position:fixed;inset:0">
<summary onclick=window.owned=1>{EVIL}</summary>

{EVIL}

<details ontoggle=window.owned=1 open><summary><a href=javascript:window.owned=1>x</a></summary>{EVIL}</details>
</details>

Note[^{NAME}] and[^1] and[^__proto__] and[^constructor].

[^{NAME}]: {EVIL}
[^1]: <details open ontoggle=window.owned=1> [x](javascript:window.owned=1) {EVIL}
[^__proto__]: proto {EVIL}
[^constructor]: constructor

```{NAME}
{EVIL}
```

```__proto__
{EVIL}
```

```constructor
x
```

- list
  ```mermaid"><img/src=x/onerror=window.owned=1>
  {EVIL}
  ```

<a href="#x" data-note id="app" onclick=window.owned=1>note</a> <span data-math="set" class="katex">fake</span>

| $|x|{EVIL}$ | <details> |
| - | - |
| \ue07c | {EVIL} |

The end.
"""


def test_nothing_hostile_in_folded_parts_footnotes_and_names_of_languages_does_anything(
    open_page: People, server: Harness, chat_id: str
) -> None:
    given(server, chat_id, HOSTILE)
    page = open_page(f"/c/{chat_id}")
    expect(answer(page)).to_contain_text("The end.")
    expect(answer(page).get_by_role("region", name="Footnotes").get_by_role("listitem")).to_have_count(4)
    said = answer(page)
    assert (
        said.locator("img, script, [onclick], [onerror], [ontoggle], [style*=fixed], #app, a[href^=javascript]").count()
        == 0
    )
    for folded in said.locator("details").all():
        folded.evaluate("part => { part.open = !part.open; part.open = true }")
    said.evaluate(
        """(said) => {
          const press = () => new MouseEvent("click", { bubbles: true, cancelable: true });
          for (const one of said.querySelectorAll("a, summary, figure, [data-math]")) one.dispatchEvent(press());
        }"""
    )
    assert page.evaluate("window.owned") is None
    assert len(page.context.pages) == 1


RAW = r"""
# <img src=x onerror=window.owned=1> in a heading

<script>window.owned=1</script> <script src=https://a.example/x.js></script>
<style>* { background: url(https://a.example/s) } @import "https://a.example/i";</style>
<link rel=stylesheet href=https://a.example/l><base href=https://a.example/><meta http-equiv=refresh content="0;url=https://a.example">
<iframe srcdoc="<script>parent.owned=1</script>"></iframe><object data=https://a.example/o>
</object><embed src=https://a.example/e>
<svg onload=window.owned=1><use href="https://a.example/u#a"/><animate onbegin=window.owned=1 /></svg>
<math><mtext><img src=x onerror=window.owned=1></mtext>
</math><form action=https://a.example/f><button formaction="javascript:window.owned=1">
<video src=https://a.example/v onloadstart=window.owned=1 autoplay></video><input autofocus onfocus=window.owned=1>
<p style="background: url(https://a.example/p)" onmouseover=window.owned=1>words</p><!--
<img src=x onerror=window.owned=1> -->

[a](javascript:window.owned=1) [b](JaVa&#x53;cript:window.owned=1) [c](<java\tscript:window.owned=1>)
[d](data:text/html,<script>parent.owned=1</script>)
[e](vbscript:x) [f]( javascript:window.owned=1 "x\" onmouseover=window.owned=1") <javascript:window.owned=1>
[g][h] ![i](javascript:window.owned=1)

![j](https://a.example/j.png) ![k](//a.example/k.png) ![l](data:image/svg+xml,<svg%20onload=window.owned=1>)
![m](x" onerror="window.owned=1)
![n](data:text/html;base64,PHNjcmlwdD4=) [![o](https://a.example/o.png)](javascript:window.owned=1)

| <img src=x onerror=window.owned=1> | `<script>` |
| :-: | - |
| [p](javascript:window.owned=1) | &lt;img src=x onerror=window.owned=1&gt; |

> - <details open ontoggle=window.owned=1><summary onclick=window.owned=1>q
</summary><img src=x onerror=window.owned=1></details>

```html
<img src=x onerror=window.owned=1><script>window.owned=1</script>
```

```css" style="background: url(https://a.example/c)
* { background: url(https://a.example/d) }
```

`<img src=x onerror=window.owned=1>` **<b onclick=window.owned=1>r</b>** ~~<i style=position:fixed>s
</i>~~ &#x3c;script&#x3e;window.owned=1

[h]: javascript:window.owned=1 "onerror=window.owned=1"
"""


@pytest.mark.parametrize("is_streamed", [False, True])
def test_hostile_markdown_runs_nothing_fetches_nothing_and_no_policy_has_to_refuse_it(
    open_page: People, server: Harness, chat_id: str, is_streamed: bool
) -> None:
    asked = open_page.requests()
    page = open_page(f"/c/{chat_id}")
    if is_streamed:  # the page draws every prefix of the content too
        stream(server, chat_id, f"{RAW}\nThe end.", 100)
    else:
        given(server, chat_id, f"{RAW}\nThe end.")
    expect(answer(page)).to_contain_text("The end.")
    answered(page)
    expect(answer(page).locator("code span").first).to_be_attached()
    assert answer(page).locator("img, script, style, iframe, svg[onload], [style*=url], [onclick]").count() == 0
    answer(page).evaluate(
        """(said) => {
          for (const one of said.querySelectorAll("summary, th, td, p, b, i")) {
            one.dispatchEvent(new MouseEvent("click", { bubbles: true }));
            one.dispatchEvent(new MouseEvent("mouseover", { bubbles: true }));
            one.dispatchEvent(new FocusEvent("focus"));
          }
        }"""
    )
    assert [
        link for link in answer(page).locator("a[href]").all() if "script" in (link.get_attribute("href") or "")
    ] == []
    assert page.evaluate("window.owned") is None
    assert all(url.startswith((server.url, "data:")) for url in asked), asked
    assert open_page.complaints == []


@pytest.mark.parametrize("nest", ["> ", "- ", "<details>\n", "<details><summary>x</summary>\n\n"])
def test_what_is_nested_without_an_end_is_shown_somehow(
    open_page: People, server: Harness, chat_id: str, nest: str
) -> None:
    given(server, chat_id, nest * 3_000 + "deep", "The end.")
    page = open_page(f"/c/{chat_id}")
    expect(answer(page, 1)).to_contain_text("The end.")


@pytest.mark.parametrize("look", LOOKS)
def test_everything_together_keeps_nobody_out(open_page: People, server: Harness, chat_id: str, look: str) -> None:
    diagram = '```mermaid\npie title Pets\n  "Dogs" : 386\n  "Cats" : 85\n```\n'
    formulas = "$x^2$ and $\\foo$\n\n$$\ny = \\frac{1}{2}\n$$\n\n"
    given(server, chat_id, f"{formulas}{diagram}\n{FOLDED}\n- [x] done\n- [ ] not yet\n\n{NOTED}")
    profile = {"viewport": {"width": 1100, "height": 1500}, **LOOKS[look]}
    open_page.profile(bypass_csp=True, **profile)  # the test adds axe to the page
    page = open_page(f"/c/{chat_id}")
    expect(page.get_by_role("img", name=re.compile("^Diagram"))).to_be_attached()
    expect(answer(page).locator("[data-math~=wrong]")).to_have_count(1)
    assert violations(page) == []
    open_page.shoot(page, f"markdown-of-every-kind-{look}")


def test_an_answer_is_copied_as_the_markdown_it_was_written_in(
    open_page: People, server: Harness, chat_id: str
) -> None:
    text = f"{FOLDED}\n{NOTED}\n$$\nx\n$$\n"
    given(server, chat_id, text)
    page = open_page(f"/c/{chat_id}")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    answer(page).hover()
    answer(page).get_by_role("button", name="Copy", exact=True).last.click()
    page.wait_for_function("() => navigator.clipboard.readText().then((text) => text.length > 100)")
    assert page.evaluate("navigator.clipboard.readText()") == text


def test_streamed_footnotes_and_folded_parts_move_nothing(open_page: People, server: Harness, chat_id: str) -> None:
    page = open_page(f"/c/{chat_id}", viewport={"width": 1100, "height": 1600})
    watch_shifts(page)
    stream(server, chat_id, FOLDED + NOTED, 150)
    answered(page)
    expect(page.get_by_role("region", name="Footnotes")).to_be_visible()
    assert layout_shift(page) <= 0.01
