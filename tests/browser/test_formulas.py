"""Formulas in answers: which texts are formulas, wrong and hostile formulas, and streamed formulas."""

import re

import pytest
from playwright.sync_api import Page, expect

from tests.browser.answers import answer, given, layout_shift, stream, watch_shifts
from tests.browser.harness import LOOKS, SCREEN_MS, Harness, People, answered, ask, say, wait_until

CONFIG = """
[models]
default = "demo/echo?rate=0"
"""

FORMULAS = r"""
The roots of $ax^2+bx+c=0$ cost $5 and $6, and \(a_n\) is the $n$th.

$$
x = \frac{-b \pm \sqrt{b^2-4ac}}{2a}
$$

\[
\int_0^\infty e^{-x^2}\,dx = \frac{\sqrt{\pi}}{2}
\]

| norm | value |
| --- | --- |
| $|x|$ | $\|y\|_2$ |

1. In a list:

   $$
   \begin{pmatrix} a & b \\ c & d \end{pmatrix}
   $$

`$HOME` is $HOME/bin. [A link](https://a.example/$b$c) and $x$.

```sh
echo $HOME $PATH
```
"""

SOURCES = ["ax^2+bx+c=0", "a_n", "n", r"x = \frac{-b \pm \sqrt{b^2-4ac}}{2a}", "|x|", r"\|y\|_2", "x"]


def set_formulas(page: Page, count: int) -> list[str]:
    """Return the sources of the formulas on the screen, which screen readers can read."""
    expect(page.locator(".katex-html")).to_have_count(count)
    return [text.strip() for text in page.locator("annotation").all_text_contents()]


@pytest.mark.parametrize("look", LOOKS)
def test_formulas_are_set_and_money_shells_and_code_stay_as_they_are(
    open_page: People, server: Harness, chat_id: str, look: str
) -> None:
    given(server, chat_id, FORMULAS)
    page = open_page(f"/c/{chat_id}", **{"viewport": {"width": 1100, "height": 1000}, **LOOKS[look]})
    found = set_formulas(page, 9)
    assert [source for source in SOURCES if source not in found] == []
    said = answer(page).inner_text()
    for text in ("cost $5 and $6, and", "$HOME is $HOME/bin.", "echo $HOME $PATH"):
        assert text in said
    assert answer(page).locator("a").get_attribute("href") == "https://a.example/$b$c"
    expect(answer(page).locator("tbody td")).to_have_count(2)
    assert page.evaluate("document.fonts.check('1em KaTeX_Main') && document.fonts.check('italic 1em KaTeX_Math')")
    width = page.evaluate("document.scrollingElement.scrollWidth - innerWidth")
    assert width <= 0
    open_page.shoot(page, f"formulas-{look}")


def test_what_sets_formulas_is_loaded_by_the_first_formula_and_from_this_server(
    open_page: People, server: Harness, chat_id: str
) -> None:
    asked = open_page.requests()
    page = open_page(f"/c/{chat_id}")
    ask(page, "It costs $5 and $6, `$x$`, no ~~diagram~~ and no code.")
    assert [url for url in asked if re.search(r"katex|diagram|mermaid|languages|\.woff", url, re.IGNORECASE)] == []
    say(page, "Now $x^2$.")
    expect(page.locator(".katex-html")).to_have_count(1)
    late = [url for url in asked if re.search("katex", url, re.IGNORECASE)]
    assert len(late) >= 4  # a script, a style sheet, and fonts
    assert all(url.startswith(f"{server.url}/assets/") for url in late)
    assert all(re.search(r"-[\w-]{8}\.(?:js|css|woff2)$", url) for url in late), late
    headers = page.request.get(next(url for url in late if url.endswith(".woff2"))).headers
    assert "immutable" in headers["cache-control"]
    assert headers["content-type"] == "font/woff2"


WRONG = r"""
Never closed $\frac{a}{b$ here, \(\foo x\) there.

$$
\begin{aligned}
a &= \unknown{b}
\end{aligned}
$$

The end.
"""


def test_a_wrong_formula_is_its_source_and_says_what_is_wrong(open_page: People, server: Harness, chat_id: str) -> None:
    given(server, chat_id, WRONG)
    page = open_page(f"/c/{chat_id}")
    wrong = answer(page).locator("[data-math~=wrong]")
    expect(wrong).to_have_count(3)
    expect(wrong.nth(0)).to_contain_text(r"\frac{a}{b")
    expect(wrong.nth(1)).to_contain_text(re.compile(r"\\foo x.*Undefined control sequence: \\foo \(character 1\)"))
    expect(wrong.nth(2)).to_contain_text(r"a &= \unknown{b}")
    expect(wrong.nth(2).locator("small")).to_have_text(re.compile(r"Undefined control sequence: \\unknown"))
    expect(answer(page)).to_contain_text("The end.")
    open_page.shoot_looks(page, "formula-wrong")


HOSTILE = r"""
$\href{javascript:window.owned=1}{click}$ $\url{javascript:window.owned=1}$ $\includegraphics{https://a.example/x.png}$
$\htmlClass{icon-button}{x}$ $\htmlId{app}{x}$ $\htmlData{copy=x}{x}$
$\htmlStyle{position:fixed;inset:0;background:red}{x}$
$\text{<img src=x onerror=window.owned=1>}$ \(</annotation><img src=x onerror=window.owned=1>\)
$\rule{9000em}{9000em}$ $\kern-9000em\text{far}$ $\raisebox{-9000em}{low}$
$\color{red;background:url(https://a.example)}x$

$$
\def\a{\a\a}\a
$$

$$
NESTED
$$

The end.
""".replace("NESTED", "{" * 2_000 + "x" + "}" * 2_000)


def test_a_hostile_formula_runs_fetches_and_covers_nothing(open_page: People, server: Harness, chat_id: str) -> None:
    asked = open_page.requests()
    given(server, chat_id, HOSTILE)
    page = open_page(f"/c/{chat_id}")
    expect(answer(page)).to_contain_text("The end.")
    wait_until(lambda: answer(page).locator("[data-math=inline], [data-math=display]").count() == 0, "all formulas set")
    inside = answer(page).locator("[data-math]")
    assert inside.locator("a, img, script, [href], [onerror], [id], [data-copy], [style*=fixed]").count() == 0
    answer(page).evaluate(
        """(said) => {
          const press = () => new MouseEvent("click", { bubbles: true, cancelable: true });
          for (const one of said.querySelectorAll("[data-math] *")) one.dispatchEvent(press());
        }"""
    )
    assert page.evaluate("window.owned") is None
    assert all(url.startswith(server.url) for url in asked), asked
    # Letters that a formula moves away are visible only within the formula's block, so the page around the block can
    # still be clicked.
    block = answer(page).locator("p").first.bounding_box()
    assert block is not None
    above = page.evaluate(
        """([left, top]) => [0, 200, 400, 600].every(
          (right) => !document.elementFromPoint(left + right, top - 12)?.closest("[data-math]"))""",
        [block["x"], block["y"]],
    )
    assert above
    page.get_by_role("button", name="New chat").click(trial=True)


STREAMED = r"""
It costs $5, and the energy is $E = mc^2$ for all $m > 0$ with a long tail of words behind it.

$$
\begin{aligned}
(a+b)^2 &= a^2 + 2ab + b^2 \\
&= \sum_{i=0}^{2} \binom{2}{i} a^i b^{2-i}
\end{aligned}
$$

Then \(\alpha + \beta\) and some words more, so that something follows, and

\[ \int_0^1 x\,dx = \frac{1}{2} \]

- a list with $\sqrt{2}$ in it
- and **another** with $\frac{1}{\sqrt{2}}$ in it, and so on and so on
"""

WATCH = r"""() => {
  const raw = (window.rawSeen = new Set());
  const kept = (window.kept = new Map());
  const look = () => {
    for (const article of document.querySelectorAll("article[aria-label=Assistant]")) {
      // What is painted: formulas that are set are left out, and so are those that are reserved (and unseen).
      const walker = document.createTreeWalker(article, NodeFilter.SHOW_TEXT);
      for (let node; (node = walker.nextNode()); ) {
        if (node.parentElement.closest("[data-math]") || node.parentElement.closest("figure")) continue;
        const found = /\$[^5][^]{0,20}|\\\w+[^]{0,20}|\\[[(][^]{0,20}/.exec(node.data);
        if (found) raw.add(found[0]);
      }
      for (const formula of article.querySelectorAll("[data-math~=set]")) {
        const source = formula.querySelector("annotation").textContent;
        if (!kept.has(source)) kept.set(source, { formula, count: 1 });
        else if (kept.get(source).formula !== formula) kept.set(source, { formula, count: kept.get(source).count + 1 });
      }
    }
    requestAnimationFrame(look);
  };
  requestAnimationFrame(look);
}"""


@pytest.mark.parametrize("rate", [30, 300])
def test_a_streamed_formula_is_never_seen_raw_and_is_set_once(
    open_page: People, server: Harness, chat_id: str, rate: int
) -> None:
    page = open_page(f"/c/{chat_id}")
    watch_shifts(page)
    page.evaluate(WATCH)
    stream(server, chat_id, STREAMED, rate)
    expect(page.locator(".katex-html")).to_have_count(7)
    answered(page)
    assert page.evaluate("[...window.rawSeen]") == []
    assert page.evaluate("[...window.kept.values()].map((each) => each.count)") == [1] * 7
    assert layout_shift(page) <= 0.01


def test_a_chat_with_formulas_opens_without_a_shift(open_page: People, server: Harness, chat_id: str) -> None:
    given(server, chat_id, FORMULAS)
    page = open_page(f"/c/{chat_id}", viewport={"width": 1100, "height": 1000})
    watch_shifts(page)
    set_formulas(page, 9)
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    assert layout_shift(page) <= 0.01


BOMBS = {
    "a long body, used often": (
        r"\def\a{" + "x" * 2_400 + "}" + r"\a" * 800,
        "A formula may not define macros (character 1)",
    ),
    "a parameter, used often": (
        r"x \newcommand{\a}[1]{" + "#1" * 800 + r"}\a{" + "x" * 2_400 + "}",
        "A formula may not define macros (character 3)",
    ),
    "another name": (r"\global\let\d=\def x", "A formula may not define macros (character 8)"),
    "columns": (
        r"\begin{matrix}" + "&" * 4_000 + r"\end{matrix}",
        "A formula may have 500 cells; this one has more",
    ),
    "own macros": (r"\iff" * 1_200, "Too many expansions: infinite loop or need to increase maxExpand setting"),
    "size": (r"x\rule{900em}{900em}", ""),
}


def test_a_formula_that_makes_much_of_little_is_refused_at_once(
    open_page: People, server: Harness, chat_id: str
) -> None:
    given(server, chat_id, "\n\n".join(f"$$\n{tex}\n$$" for tex, _ in BOMBS.values()) + "\n\nThe end.")
    page = open_page(f"/c/{chat_id}")
    formulas = answer(page).locator("[data-math~=display]")
    for number, (_, wrong) in enumerate(BOMBS.values()):
        if wrong:
            expect(formulas.nth(number).locator("small")).to_have_text(wrong)
    page.get_by_role("textbox", name="Message").fill("The page does not hang")
    expect(formulas).to_have_count(len(BOMBS))
    tall = formulas.last.locator(".katex-html").bounding_box()
    size = formulas.last.evaluate("(formula) => parseFloat(getComputedStyle(formula).fontSize) * 1.21")
    assert tall is not None
    assert tall["height"] <= 32 * size


def test_a_fence_of_math_is_bounded_as_other_formulas_are(open_page: People, server: Harness, chat_id: str) -> None:
    given(server, chat_id, "```math\n" + "x" * 5_001 + "\n```\n\n```math\nx^2\n```\n")
    page = open_page(f"/c/{chat_id}")
    expect(answer(page).locator("small")).to_have_text("A formula may have 5,000 characters; this one is longer")
    expect(answer(page).locator(".katex-html")).to_have_count(1)


FRAMES = """() => {
  window.frames_ = { count: 0, longest: 0 };
  let before = performance.now();
  const look = (now) => {
    // From the first formula to the last.
    const set = document.querySelector("[data-math~=set]");
    const open = document.querySelector("[data-math=display]");
    if (set && open) frames_.count += 1;
    if (set) frames_.longest = Math.max(frames_.longest, now - before);
    before = now;
    requestAnimationFrame(look);
  };
  requestAnimationFrame(look);
}"""

ANSWER_CHARACTERS = 30_000
FRAME_CHARACTERS = 1_000


def test_an_answer_of_many_formulas_is_set_over_many_frames_and_has_an_end(
    open_page: People, server: Harness, chat_id: str
) -> None:
    page = open_page(f"/c/{chat_id}")
    page.evaluate(FRAMES)
    row = r"\frac{a_{ROW}}{\sqrt{b^2+c}} + \alpha^{x+1} \\ "
    tex = "\n".join(row.replace("ROW", str(at)) for at in range(40))[:1_900].rpartition("\n")[0]
    count = ANSWER_CHARACTERS // len(tex) + 6
    given(server, chat_id, "\n\n".join(f"$$\n{tex}\n$$" for _ in range(count)), "And $x^2$.")
    expect(answer(page, 1).locator(".katex-html")).to_have_count(1)
    box = page.get_by_role("textbox", name="Message")
    box.fill("Frames go on")
    wait_until(
        lambda: answer(page).locator("[data-math=display]").count() == 0, "all formulas set", 5 * SCREEN_MS / 1_000
    )
    refused = answer(page).locator("small")
    assert 6 <= refused.count() <= 8
    expect(refused.first).to_have_text("An answer may have 30,000 characters of formulas")
    frames: dict[str, float] = page.evaluate("frames_")
    print(frames)
    assert frames["count"] >= ANSWER_CHARACTERS / FRAME_CHARACTERS / 4
    expect(box).to_have_value("Frames go on")
