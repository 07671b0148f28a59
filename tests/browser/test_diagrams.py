"""Diagrams in answers: drawn away from the page, their source behind a button, and what a wrong or hostile one does."""

import re

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.answers import answer, given, layout_shift, stream, watch_shifts
from tests.browser.house import SCREEN_MS, House, People, answered

CONFIG = """
[models]
default = "demo/echo?rate=0"
"""

FLOW = """flowchart TD
    A[Browser] -->|command| B(Inbox)
    B --> C{An actor?}
    C -->|yes| D[Log]
    C -->|no| E[Start one]
    E --> D"""

SEQUENCE = """sequenceDiagram
    Alice->>Bob: Hello
    Bob-->>Alice: Hi"""


def fenced(source: str) -> str:
    return f"A diagram:\n\n```mermaid\n{source}\n```\n"


def picture(page: Page, number: int = 0) -> Locator:
    """The diagram of that number, once it is drawn."""
    found = page.get_by_role("img", name=re.compile("^Diagram")).nth(number)
    expect(found).to_be_visible()
    return found


PIXEL = """async (image) => {
  await image.decode();
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [image.naturalWidth, image.naturalHeight];
  const context = canvas.getContext("2d");
  context.drawImage(image, 0, 0);
  const { data } = context.getImageData(0, 0, canvas.width, canvas.height);
  let light = 0, seen = 0;
  for (let at = 0; at < data.length; at += 4) {
    if (data[at + 3] < 200) continue;
    seen += 1;
    light += data[at] + data[at + 1] + data[at + 2] > 380;
  }
  return [seen, light / seen];
}"""
"""How many pixels are drawn, and which part of them is light."""


def test_a_diagram_is_a_picture_and_shows_its_source_on_a_press(open_page: People, server: House, chat_id: str) -> None:
    listed = "\n".join(f"   {line}" for line in fenced(SEQUENCE).splitlines())
    given(server, chat_id, f"{fenced(FLOW)}\n1. In a list:\n\n{listed}\n\nAfter it.")
    page = open_page(f"/c/{chat_id}", viewport={"width": 1100, "height": 1200})
    for number in (0, 1):
        seen, _ = picture(page, number).evaluate(PIXEL)
        assert seen > 1_000
    open_page.shoot(page, "14-8-diagrams")
    figure = answer(page).get_by_role("figure").nth(0)
    figure.get_by_role("button", name="Source").click()
    expect(figure.get_by_text("C{An actor?}")).to_be_visible()
    expect(figure.get_by_role("img")).to_have_count(0)
    open_page.shoot(page, "14-8-diagram-source")
    figure.get_by_role("button", name="Source").click()
    picture(page).click()
    expect(page.get_by_role("dialog").get_by_role("img", name=re.compile("^Diagram"))).to_be_visible()
    page.keyboard.press("Escape")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    figure.get_by_role("button", name="Copy").click()
    expect(figure.get_by_role("button", name="Copied")).to_be_visible()
    assert page.evaluate("navigator.clipboard.readText()") == FLOW


def test_a_diagram_takes_the_colours_of_the_page_and_fits_a_telephone(
    open_page: People, server: House, chat_id: str
) -> None:
    given(server, chat_id, fenced(FLOW))
    page = open_page(f"/c/{chat_id}", color_scheme="light")
    _, light = picture(page).evaluate(PIXEL)
    page.emulate_media(color_scheme="dark")
    before = picture(page).get_attribute("src")
    expect(picture(page)).not_to_have_attribute("src", before or "")
    _, dark = picture(page).evaluate(PIXEL)
    assert light > 0.7 > 0.5 > dark
    open_page.shoot(page, "14-8-diagrams-dark")
    phone = open_page(f"/c/{chat_id}", person="bob", viewport={"width": 390, "height": 844})
    picture(phone)
    assert phone.evaluate("document.scrollingElement.scrollWidth - innerWidth") <= 0
    open_page.shoot(phone, "14-8-diagrams-phone")


def test_a_wrong_diagram_is_its_source_with_what_is_wrong(open_page: People, server: House, chat_id: str) -> None:
    given(server, chat_id, "\n".join(map(fenced, ["flowchart LR\n  A --> ", "no such kind\n  A", SEQUENCE])))
    page = open_page(f"/c/{chat_id}")
    figures = answer(page).get_by_role("figure")
    expect(figures.nth(0)).to_contain_text(re.compile(r"This diagram cannot be drawn\. Parse error on line \d"))
    expect(figures.nth(0).get_by_text("A -->")).to_be_visible()
    expect(figures.nth(1)).to_contain_text("This diagram cannot be drawn. No diagram type detected")
    expect(picture(page)).to_be_visible()
    open_page.shoot(page, "14-8-diagram-wrong")


HOSTILE = [
    """flowchart TD
  A["<img src=x onerror=parent.owned=1><script>parent.owned=1</script>"] --> B
  click A href "javascript:parent.owned=1"
  click B call alert()
""",
    """%%{init: {"securityLevel": "loose", "htmlLabels": true, "fontFamily": "x; } @import url(https://a.example/y); {",
  "themeCSS": "* { background: url(https://a.example/x) }"}}%%
flowchart TD
  A["<iframe src=https://a.example>"] --> B
""",
    """flowchart TD
  A@{ img: "https://a.example/x.png", label: "x" } --> B
  style A fill:url(https://a.example/z)
""",
    """sequenceDiagram
  participant A
  links A: {"x": "javascript:parent.owned=1"}
  A->>A: <b onclick=parent.owned=1>x</b>
""",
    """---
config:
  securityLevel: loose
  theme: "</style><script>parent.owned=1</script>"
---
pie
  "</style><script>parent.owned=1</script>" : 1
""",
]


def test_a_hostile_diagram_runs_fetches_and_changes_nothing(open_page: People, server: House, chat_id: str) -> None:
    open_page.expect_complaint("Content Security Policy|sandboxed")  # what it tries is refused, and that is said
    asked: list[str] = []
    open_page.profile().on("request", lambda request: asked.append(request.url))
    given(server, chat_id, "\n".join(fenced(each) for each in HOSTILE) + "\nThe end.")
    page = open_page(f"/c/{chat_id}")
    expect(answer(page).locator("[aria-busy=true]")).to_have_count(0, timeout=2 * SCREEN_MS)
    frame = page.locator("iframe")
    assert frame.get_attribute("sandbox") == "allow-scripts"
    inside = next(each for each in page.frames if each.url.endswith("/diagram"))
    assert inside.evaluate("origin") == "null"
    assert inside.evaluate("(() => { try { return parent.document.title } catch { return 'refused' } })()") == "refused"
    assert inside.evaluate("fetch('/v1/caps').then(() => 'fetched', () => 'refused')") == "refused"
    for image in answer(page).get_by_role("img").all():
        assert (image.get_attribute("src") or "").startswith("data:image/svg+xml")
        image.click()
        expect(page.get_by_role("dialog")).to_be_visible()
        page.keyboard.press("Escape")
        expect(page.get_by_role("dialog")).to_have_count(0)
    assert page.evaluate("window.owned") is None
    assert all(url.startswith((server.url, "data:")) for url in asked), asked
    policy = page.request.get(f"{server.url}/diagram").headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "sandbox allow-scripts" in policy


def test_a_diagram_that_takes_too_long_is_given_up_and_the_page_works_meanwhile(
    open_page: People, server: House, chat_id: str
) -> None:
    edges = "\n".join(f"  n{a} --> n{b}" for a in range(40) for b in range(a + 1, a + 8))
    given(server, chat_id, "\n".join(map(fenced, [f"flowchart TD\n{edges}", "x" * 30_000, FLOW])))
    page = open_page(f"/c/{chat_id}")
    box = page.get_by_role("textbox", name="Message")
    box.fill("Still here")
    expect(box).to_have_value("Still here")
    figures = answer(page).get_by_role("figure")
    expect(figures.nth(1)).to_contain_text("A diagram may have 20,000 characters; this one is longer")
    expect(figures.nth(2).get_by_role("img")).to_be_visible()


STUCK = """() => addEventListener("message", () => { for (;;) {} }, true)"""


def test_a_frame_that_hangs_is_thrown_away_and_the_next_diagram_is_drawn(
    open_page: People, server: House, chat_id: str
) -> None:
    page = open_page(f"/c/{chat_id}")
    stream(server, chat_id, fenced(SEQUENCE), 1_000)
    picture(page)
    inside = next(each for each in page.frames if each.url.endswith("/diagram"))
    inside.evaluate(STUCK)
    answered(page)
    stream(server, chat_id, fenced(FLOW), 1_000)
    answered(page, 4)
    page.get_by_role("textbox", name="Message").fill("The page itself does not hang")
    expect(answer(page, 1)).to_contain_text("Drawing this takes too long")
    answered(page, 4)
    stream(server, chat_id, fenced(FLOW.replace("Log", "Book")), 1_000)
    picture(page, 1)


@pytest.mark.parametrize("rate", [60, 300])
def test_a_streamed_diagram_is_drawn_once_and_moves_nothing(
    open_page: People, server: House, chat_id: str, rate: int
) -> None:
    page = open_page(f"/c/{chat_id}", viewport={"width": 1100, "height": 1400})
    watch_shifts(page)
    page.evaluate(
        """() => {
          window.pictures = new Set();
          new MutationObserver(() => {
            for (const image of document.querySelectorAll("img[alt^=Diagram]")) window.pictures.add(image);
          }).observe(document.body, { childList: true, subtree: true });
        }"""
    )
    after = "And so it goes on and on with words that stand below the diagram. " * 12
    stream(server, chat_id, f"{fenced(FLOW)}\n{after}\n\n{fenced(SEQUENCE)}\n{after}", rate)
    picture(page, 1)
    answered(page)
    assert page.evaluate("window.pictures.size") == 2
    assert layout_shift(page) <= 0.01
