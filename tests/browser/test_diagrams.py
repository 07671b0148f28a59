"""Diagrams in answers: their pictures, the button for their source, and wrong and hostile diagrams."""

import re

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.answers import answer, given, layout_shift, stream, watch_shifts
from tests.browser.harness import PHONE, SCREEN_MS, Harness, People, answered, wait_until

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
    """Return the picture of the diagram with this number, once it is drawn."""
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
"""Returns the number of drawn pixels, and the share of light pixels among them."""


def drawn(page: Page) -> None:
    """Wait until every visible diagram is drawn in the present colours of the page."""
    is_dark = page.evaluate("matchMedia('(prefers-color-scheme: dark)').matches")
    images = page.get_by_role("img", name=re.compile("^Diagram"))
    expect(page.locator("figure [aria-busy=true]")).to_have_count(0)
    wait_until(lambda: all((each.evaluate(PIXEL)[1] < 0.6) == is_dark for each in images.all()), "its colours")


def test_a_diagram_is_a_picture_and_shows_its_source_on_a_press(
    open_page: People, server: Harness, chat_id: str
) -> None:
    listed = "\n".join(f"   {line}" for line in fenced(SEQUENCE).splitlines())
    given(server, chat_id, f"{fenced(FLOW)}\n1. In a list:\n\n{listed}\n\nAfter it.")
    page = open_page(f"/c/{chat_id}", viewport={"width": 1100, "height": 1200})
    for number in (0, 1):
        seen, _ = picture(page, number).evaluate(PIXEL)
        assert seen > 1_000
    open_page.shoot_looks(page, "diagrams", ready=lambda: drawn(page))
    figure = answer(page).get_by_role("figure").nth(0)
    figure.get_by_role("button", name="Source").click()
    expect(figure.get_by_text("C{An actor?}")).to_be_visible()
    expect(figure.get_by_role("img")).to_have_count(0)
    open_page.shoot_looks(page, "diagram-source", ready=lambda: drawn(page))
    figure.get_by_role("button", name="Source").click()
    picture(page).click()
    expect(page.get_by_role("dialog").get_by_role("img", name=re.compile("^Diagram"))).to_be_visible()
    page.keyboard.press("Escape")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    figure.get_by_role("button", name="Copy").click()
    expect(figure.get_by_role("button", name="Copied")).to_be_visible()
    assert page.evaluate("navigator.clipboard.readText()") == FLOW


def test_a_diagram_takes_the_colours_of_the_page_and_fits_a_telephone(
    open_page: People, server: Harness, chat_id: str
) -> None:
    given(server, chat_id, fenced(FLOW))
    page = open_page(f"/c/{chat_id}", color_scheme="light")
    _, light = picture(page).evaluate(PIXEL)
    before = picture(page).get_attribute("src")
    page.emulate_media(color_scheme="dark")
    expect(picture(page)).not_to_have_attribute("src", before or "")
    _, dark = picture(page).evaluate(PIXEL)
    assert light > 0.7 > 0.5 > dark
    phone = open_page(f"/c/{chat_id}", person="bob", viewport=PHONE)
    picture(phone)
    assert phone.evaluate("document.scrollingElement.scrollWidth - innerWidth") <= 0


def test_a_wrong_diagram_is_its_source_with_what_is_wrong(open_page: People, server: Harness, chat_id: str) -> None:
    given(server, chat_id, "\n".join(map(fenced, ["flowchart LR\n  A --> ", "no such kind\n  A", SEQUENCE])))
    page = open_page(f"/c/{chat_id}")
    figures = answer(page).get_by_role("figure")
    expect(figures.nth(0)).to_contain_text(re.compile(r"This diagram cannot be drawn\. Parse error on line \d"))
    expect(figures.nth(0).get_by_text("A -->")).to_be_visible()
    expect(figures.nth(1)).to_contain_text("This diagram cannot be drawn. No diagram type detected")
    expect(picture(page)).to_be_visible()
    open_page.shoot_looks(page, "diagram-wrong", ready=lambda: drawn(page))


@pytest.mark.parametrize("layout", ["elk", "elk.stress"])
def test_a_diagram_that_asks_for_elk_is_drawn_by_a_layout_that_is_there(
    open_page: People, server: Harness, chat_id: str, layout: str
) -> None:
    """The build leaves ELK out (docs/decisions/0034)."""
    asking = [f"---\nconfig:\n  layout: {layout}\n---\n{source}" for source in (FLOW, "mindmap\n  root\n    leaf")]
    given(server, chat_id, "\n".join(map(fenced, asking)))
    page = open_page(f"/c/{chat_id}")
    picture(page, len(asking) - 1)
    expect(answer(page)).not_to_contain_text("cannot be drawn")


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
    """flowchart TD
  A@{ img: "https://a.example/x.png", label: "x", pos: "t", w: 60, h: 60 }
  A --> B
""",
    """flowchart TD
  subgraph "<img src=x onerror=parent.owned=1>"
    A["<svg onload=parent.owned=1>"] -->|"<b onclick=parent.owned=1>"| B["`<img onerror>`"]
  end
  click A call parent.owned(1)
""",
    """classDiagram
  class A["<img/onerror=parent.owned=1>"]
  A <|-- B : <video onloadstart=parent.owned=1>
  note for A "#60;img src=x onerror=parent.owned=1#62;"
  click A call callback() "<img src=x onerror=parent.owned=1>"
""",
    """stateDiagram-v2
  s1 : <foreignObject><body onload=parent.owned=1></foreignObject>
  s1 --> s2 : <a href="javascript:parent.owned=1">x</a>
""",
    """gantt
  title <img src=x onerror=parent.owned=1>
  section <style>* { background: url(https://a.example/s) }</style>
  <img src=x onerror=parent.owned=1> :a, 2024-01-01, 3d
  click a call parent.owned()
""",
    """sequenceDiagram
  actor A as <img src=x onerror=parent.owned=1>
  rect url(https://a.example/r)
  A->>B: <img src=x onerror=parent.owned=1>
  end
  Note over A: <style>@import "https://a.example/i";</style>
""",
    """mindmap
  root(("<img src=x onerror=parent.owned=1>"))
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


def test_a_hostile_diagram_runs_fetches_and_changes_nothing(open_page: People, server: Harness, chat_id: str) -> None:
    asked = open_page.requests()
    given(server, chat_id, "\n".join(fenced(each) for each in HOSTILE) + "\nThe end.")
    page = open_page(f"/c/{chat_id}")
    expect(answer(page).locator("[aria-busy=true]")).to_have_count(0, timeout=2 * SCREEN_MS)
    # Up to here the Content Security Policy has refused nothing. The policy refuses the requests that this test makes
    # below.
    assert open_page.complaints == []
    open_page.expect_complaint("Content Security Policy|sandboxed")
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
    open_page: People, server: Harness, chat_id: str
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


HANGS = """if (location.pathname === "/diagram") addEventListener("message", ({ data }) => {
  for (; data.source?.includes("Hang"); ) {}
}, true)"""
"""Makes a frame hang on each diagram that contains the word "Hang"."""

HANGING_COUNT = 6


def test_frames_that_hang_are_thrown_away_and_good_diagrams_are_drawn_before_they_are_tried_again(
    open_page: People, server: Harness, chat_id: str
) -> None:
    """Each hanging diagram costs 3 s and a new frame (`queue.ts`), so the oldest diagram is drawn within half a
    minute."""
    open_page.profile().add_init_script(HANGS)
    hanging = [FLOW.replace("Log", f"Hang {number}") for number in range(HANGING_COUNT)]
    given(server, chat_id, "\n".join(map(fenced, [FLOW, *hanging, SEQUENCE])), "The end.")
    page = open_page(f"/c/{chat_id}")
    figures = answer(page).get_by_role("figure")
    expect(figures.last.get_by_role("img")).to_be_visible()
    page.get_by_role("textbox", name="Message").fill("The page itself does not hang")
    expect(figures.first.get_by_role("img")).to_be_visible(timeout=2 * SCREEN_MS)
    expect(answer(page)).not_to_contain_text("cannot be drawn")
    expect(figures.nth(HANGING_COUNT)).to_contain_text("Drawing this takes too long", timeout=2 * SCREEN_MS)
    stream(server, chat_id, fenced(FLOW.replace("Log", "Book")), 1_000)
    expect(answer(page, 2).get_by_role("img")).to_be_visible()


@pytest.mark.parametrize("rate", [60, 300])
def test_a_streamed_diagram_is_drawn_once_and_moves_nothing(
    open_page: People, server: Harness, chat_id: str, rate: int
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
