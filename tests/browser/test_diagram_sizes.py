"""The boxes of diagrams are as large as their pictures, for every kind and on every screen, and nothing moves."""

import re

import pytest
from playwright.sync_api import Page, expect

from tests.browser.answers import answer, given, layout_shift, stream, watch_shifts
from tests.browser.harness import SCREEN_MS, Harness, People
from tests.browser.test_diagrams import FLOW, fenced
from threadcast_protocol.wire.messages import JsonObject

CONFIG = """
[models]
default = "demo/echo?rate=0"
"""

SMALL = {
    "flowchart": "flowchart LR\n  A[One] --> B[Two]",
    "sequence": "sequenceDiagram\n  Ann->>Bob: Hello",
    "class": "classDiagram\n  class Chat {\n    +String id\n  }",
    "state": "stateDiagram-v2\n  [*] --> Idle",
    "gantt": "gantt\n  dateFormat YYYY-MM-DD\n  Write :a, 2014-01-01, 3d",
    "pie": 'pie\n  "Dogs" : 3\n  "Cats" : 1',
}

LARGE = {
    "flowchart": "flowchart TD\n"
    + "\n".join(f"  N{at}[Step number {at}] -->|next| N{at + 1}{{Is {at} done?}}" for at in range(14)),
    "wide": "flowchart LR\n" + "\n".join(f"  N{at}[Step number {at}] --> N{at + 1}" for at in range(14)),
    "sequence": "sequenceDiagram\n  participant A as The browser of a person\n  participant B as The inbox\n"
    + "\n".join(f"  A->>B: Command number {at} with some words\n  Note over A,B: Note {at}" for at in range(12)),
    "class": "classDiagram\n"
    + "\n".join(
        f"  class Kind{at} {{\n    +String name\n    +List~int~ all\n    +decide(state, command) Events\n  }}\n"
        f"  Kind{at // 2} <|-- Kind{at}"
        for at in range(1, 9)
    ),
    "state": "stateDiagram-v2\n  [*] --> S0\n"
    + "\n".join(f"  S{at} --> S{at + 1}: event {at}\n  S{at + 1} --> S{at}: back" for at in range(9))
    + "\n  state S4 {\n    a --> b\n    b --> c\n  }",
    "gantt": "gantt\n  title A plan\n  dateFormat YYYY-MM-DD\n"
    + "\n".join(f"  section Part {at}\n  Task {at} :t{at}, 2014-01-{at + 1:02}, 4d" for at in range(20)),
    "pie": "pie showData\n  title What people keep at home\n"
    + "\n".join(f'  "Animals of the kind {at}" : {at + 3}' for at in range(10)),
}

ALL = [*SMALL.values(), *LARGE.values()]

LOOKS: dict[str, JsonObject] = {
    "light": {"viewport": {"width": 1100, "height": 900}, "color_scheme": "light"},
    "dark": {"viewport": {"width": 1100, "height": 900}, "color_scheme": "dark"},
    "phone": {"viewport": {"width": 390, "height": 844}},
}

MEASURE = r"""async (image) => {
  const box = image.closest("[data-canvas]");
  const [inner, outer] = [image.getBoundingClientRect(), box.getBoundingClientRect()];
  // The picture once more, with a border of 40 around it, to see whether anything is drawn beyond its edges.
  const text = decodeURIComponent(image.src.slice(image.src.indexOf(",") + 1));
  const svg = new DOMParser().parseFromString(text, "image/svg+xml").documentElement;
  const { x, y, width, height } = svg.viewBox.baseVal;
  const EDGE = 40;
  svg.setAttribute("viewBox", [x - EDGE, y - EDGE, width + 2 * EDGE, height + 2 * EDGE].join(" "));
  svg.setAttribute("width", width + 2 * EDGE);
  svg.setAttribute("height", height + 2 * EDGE);
  const wider = new Image();
  wider.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(new XMLSerializer().serializeToString(svg))}`;
  await wider.decode();
  const canvas = new OffscreenCanvas(width + 2 * EDGE, height + 2 * EDGE);
  const context = canvas.getContext("2d");
  context.drawImage(wider, 0, 0);
  const { data } = context.getImageData(0, 0, canvas.width, canvas.height);
  let [top, bottom, left, right] = [Infinity, -1, Infinity, -1];
  for (let row = 0; row < canvas.height; row += 1)
    for (let column = 0; column < canvas.width; column += 1)
      if (data[4 * (row * canvas.width + column) + 3] > 40) {
        top = Math.min(top, row);
        bottom = Math.max(bottom, row);
        left = Math.min(left, column);
        right = Math.max(right, column);
      }
  return {
    width, height,
    shown: inner.height,
    box: outer.height,
    column: outer.width,
    scale: inner.width / width,
    cut: inner.left < outer.left || inner.top < outer.top || inner.bottom > outer.bottom + 0.5
      || box.scrollHeight > box.clientHeight + 1 || inner.right - outer.left > box.scrollWidth + 1,
    sideways: box.scrollWidth > box.clientWidth + 1,
    shape: (inner.width / inner.height) / (width / height),
    empty: { top: top - EDGE, bottom: height + EDGE - 1 - bottom, left: left - EDGE, right: width + EDGE - 1 - right },
  };
}"""
"""Returns the box of a picture, and the empty space at each edge of the picture, in the picture's own pixels. A
negative number means that the picture is cut at that edge."""

EMPTY_PX = 26
"""Maximum empty space at an edge: the page's margin, and the space that a kind of diagram adds."""


def boxes(page: Page, count: int, number: int = 0) -> list[JsonObject]:
    """Return the measures of the diagrams in an answer, once they are drawn."""
    pictures = answer(page, number).locator("[data-canvas] img")
    expect(pictures).to_have_count(count, timeout=2 * SCREEN_MS)
    return [each.evaluate(MEASURE) for each in pictures.all()]


def fits(measures: list[JsonObject], names: list[str]) -> None:
    for name, found in zip(names, measures, strict=True):
        print(name, found)
        assert not found["cut"], name
        assert found["box"] - found["shown"] <= 24.5 + 0.03 * found["shown"], name
        assert 0.97 < found["shape"] < 1.03, name
        assert found["scale"] >= 0.599, f"{name} cannot be read"
        assert not found["sideways"] or found["scale"] < 0.601, f"{name} scrolls although it could be smaller"
        assert min(found["empty"].values()) >= 0, f"{name} is drawn beyond its edges"
        assert max(found["empty"]["top"], found["empty"]["bottom"]) <= EMPTY_PX + 0.04 * found["height"], name


NAMES = [*(f"small {name}" for name in SMALL), *(f"large {name}" for name in LARGE)]


@pytest.mark.parametrize("look", LOOKS)
def test_each_box_is_as_large_as_its_picture_when_an_answer_is_written_and_after_a_reload(
    open_page: People, server: Harness, chat_id: str, look: str
) -> None:
    given(server, chat_id, fenced(FLOW))
    page = open_page(f"/c/{chat_id}", person=look, **LOOKS[look])
    boxes(page, 1)  # the scripts that draw are loaded
    watch_shifts(page)
    words = "Words that stand below the diagrams. " * 150
    stream(server, chat_id, "\n".join(map(fenced, ALL)) + f"\n{words}\n\nThe end.", 150)
    expect(answer(page, 1)).to_contain_text("The end.", timeout=3 * SCREEN_MS)
    pictures = answer(page, 1).locator("[data-canvas] img")
    expect(pictures).to_have_count(len(ALL), timeout=2 * SCREEN_MS)
    assert layout_shift(page) <= 0.01
    for at in range(0, len(ALL), 2):
        answer(page, 1).locator("figure").nth(at).evaluate("(figure) => figure.scrollIntoView()")
        open_page.shoot(page, f"14-8-sizes-{look}-{at:02}")
    page.reload()
    fits(boxes(page, len(ALL), 1), NAMES)


def test_a_small_diagram_that_is_written_has_its_box_at_once(open_page: People, server: Harness, chat_id: str) -> None:
    given(server, chat_id, "\n".join(map(fenced, [LARGE["pie"], LARGE["flowchart"]])))
    page = open_page(f"/c/{chat_id}", viewport={"width": 1100, "height": 1400})
    boxes(page, 2)  # the scripts that draw are loaded
    watch_shifts(page)
    words = "Words that stand below the diagram. " * 20
    stream(
        server, chat_id, f"{fenced(SMALL['pie'])}\n{words}\n\n{fenced(SMALL['flowchart'])}\n{words}\n\nThe end.", 100
    )
    expect(answer(page, 1)).to_contain_text("The end.", timeout=2 * SCREEN_MS)
    fits(boxes(page, 2, 1), ["pie", "flowchart"])
    assert layout_shift(page) <= 0.01


def test_a_diagram_of_an_old_chat_keeps_its_box_in_sight_and_takes_its_own_height_out_of_sight(
    open_page: People, server: Harness, chat_id: str
) -> None:
    words = "Words that stand above and below. " * 40
    between = "\n\n".join([words] * 8)
    above, seen, below = (fenced(SMALL[kind]) for kind in ("flowchart", "pie", "class"))
    given(server, chat_id, f"{above}\n{between}\n\nThe middle.\n\n{seen}\n{between}\n\n{below}", "Short.")
    page = open_page(f"/c/{chat_id}#m-a0", viewport={"width": 1100, "height": 700})
    middle = answer(page).get_by_text("The middle.")
    middle.evaluate("(words) => words.scrollIntoView()")
    page.evaluate(WATCH_TOP)
    watch_shifts(page)
    first = boxes(page, 3)
    fits([first[0], first[2]], ["flowchart", "class"])
    assert not first[1]["cut"]
    assert page.evaluate("window.tops.size") == 1, page.evaluate("[...window.tops]")
    assert layout_shift(page) <= 0.01
    answer(page).locator("figure").nth(2).evaluate("(figure) => figure.scrollIntoView()")
    expect(answer(page).locator("[data-canvas]").nth(1)).to_have_css("height", re.compile(r"^(?!340px)"))
    fits(boxes(page, 3), ["flowchart", "pie", "class"])
    assert layout_shift(page) <= 0.01
    page.reload()
    fits(boxes(page, 3), ["flowchart", "pie", "class"])


WATCH_TOP = """() => {
  window.tops = new Set();
  const words = [...document.querySelectorAll("p")].find((each) => each.textContent === "The middle.");
  // After each frame is painted: within a frame, what is to be mended before it is painted is seen too.
  const { port1, port2 } = new MessageChannel();
  port1.onmessage = () => window.tops.add(Math.round(words.getBoundingClientRect().top));
  const look = () => {
    port2.postMessage(0);
    requestAnimationFrame(look);
  };
  look();
}"""


def test_a_drawing_that_is_enlarged_has_its_own_size_and_scrolls(
    open_page: People, server: Harness, chat_id: str
) -> None:
    given(server, chat_id, fenced(LARGE["wide"]))
    page = open_page(f"/c/{chat_id}", viewport={"width": 390, "height": 844})
    found = boxes(page, 1)[0]
    answer(page).locator("[data-canvas] img").click()
    large = page.get_by_role("dialog").get_by_role("img")
    expect(large).to_be_visible()
    assert large.evaluate("(image) => image.getBoundingClientRect().width") == found["width"]
    open_page.shoot(page, "14-8-sizes-enlarged-phone")
    large.evaluate("(image) => { image.parentElement.scrollLeft = 1e6; }")
    assert large.evaluate("(image) => image.getBoundingClientRect().right <= innerWidth")
