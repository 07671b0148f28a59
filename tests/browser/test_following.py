"""The end of a conversation is followed until the person leaves it; changes of the layout do not end the following.

People leave the end with the wheel, a key, a finger, the scroll bar or a selection. Panels, loaded pictures, resized
windows and screen keyboards change only the layout.
"""

from collections.abc import Callable

import pytest
from playwright.sync_api import Locator, Page, Route, expect

from tests.browser.harness import Harness, People, say, wait_until
from tests.browser.test_tools import APP, CONFIG, call, ends, question
from threadcast_protocol.wire.messages import JsonObject

__all__ = ["APP", "CONFIG", "HAS_SCROLL_BARS"]

HAS_SCROLL_BARS = True

LONG = "One line of many.\n\n" * 12

ESSAY = {"model": "demo/essay?words=6000&rate=40"}
"""An answer that grows for longer than any test takes."""

NEXT_FRAMES = """async (count) => {
    for (let frame = 0; frame < count; frame++) await new Promise(requestAnimationFrame);
}"""

TALL_PICTURE = '<svg xmlns="http://www.w3.org/2000/svg" width="300" height="400"/>'


def log(page: Page) -> Locator:
    return page.get_by_role("log", name="Conversation")


def from_end(page: Page) -> float:
    """Return how many pixels of the conversation are below the visible part."""
    found: float = log(page).evaluate("box => box.scrollHeight - box.scrollTop - box.clientHeight")
    return found


def top(page: Page) -> float:
    found: float = log(page).evaluate("box => box.scrollTop")
    return found


def settle(page: Page) -> None:
    """Let the browser draw a few frames, during which it reports movements and sizes."""
    page.evaluate(NEXT_FRAMES, 4)


def jump(page: Page) -> Locator:
    return page.get_by_role("button", name="Jump to newest")


def follows(page: Page) -> None:
    """Check that the end is visible, and is still visible after a few frames."""
    wait_until(lambda: from_end(page) <= 2, "the end")
    settle(page)
    assert from_end(page) <= 2
    expect(jump(page)).to_have_count(0)


def long_chat(server: Harness, chat_id: str, last: str = LONG) -> None:
    said: list[JsonObject] = []
    for number in range(6):
        said.append({"role": "user", "content": f"question {number}"})
        said.append({"role": "assistant", "content": LONG})
    said[-1]["content"] = last
    server.command(chat_id, "restore_messages", messages=said)
    server.at_rest(chat_id, len(said))


PANEL_IN_MID_GROWTH = """async () => {
    const words = document.querySelector('article:last-of-type');
    const frame = () => new Promise(requestAnimationFrame);
    const later = () => new Promise((done) => setTimeout(done));
    const panel = document.createElement('div');
    panel.style.height = '300px';
    for (let round = 0; round < 10; round++) {
        await frame();
        words.append(Object.assign(document.createElement('p'), { textContent: 'More words.' }));
        await later();  // the end was followed, and the browser tells of that movement in the next frame
        document.getElementById('composer').prepend(panel);
        await frame(); await frame();
        words.append(Object.assign(document.createElement('p'), { textContent: 'More words.' }));
        await later();
        panel.remove();
        await frame(); await frame();
    }
}"""
"""An answer grows while a panel above the composer opens and closes, in an order in which the page once stopped
following."""


def test_panels_that_open_and_close_while_an_answer_grows_do_not_lose_the_end(
    open_page: People, server: Harness, chat_id: str
) -> None:
    long_chat(server, chat_id)
    page = open_page(f"/c/{chat_id}")
    follows(page)
    page.evaluate(PANEL_IN_MID_GROWTH)
    follows(page)


def test_the_end_stays_in_sight_when_a_tool_asks_and_when_it_is_allowed(
    open_page: People, server: Harness, chat_id: str
) -> None:
    long_chat(server, chat_id)
    page = open_page(f"/c/{chat_id}")
    follows(page)
    for number in range(3):
        say(page, call("send_mail", to=f"person {number}"))
        expect(question(page, "send_mail")).to_be_visible()
        follows(page)
        if number == 0:
            open_page.shoot_looks(page, "end-followed-past-a-question")
        question(page, "send_mail").get_by_role("button", name="Allow", exact=True).click()
        expect(question(page, "send_mail")).to_have_count(0)
        server.at_rest(chat_id, 12 + 4 * (number + 1))
        ends_last(page)
        follows(page)


def ends_last(page: Page) -> None:
    expect(page.locator("[data-tool=send_mail]").last).to_have_attribute("data-state", "done")


def grows(page: Page, server: Harness, chat_id: str) -> None:
    """Start a growing answer, and check that its end is followed."""
    server.message(chat_id, "Tell me", params=ESSAY)
    wait_until(lambda: top(page) > 400, "an answer longer than the window")
    wait_until(lambda: from_end(page) <= 2, "the end, as soon as the new words are drawn")


def stays(page: Page) -> None:
    """Check that the end is not followed: the visible text stays in place while the answer grows."""
    expect(jump(page)).to_be_visible()
    log(page).evaluate(
        """async (box) => {
            for (let frames = 0, last = -1; frames < 5; frames = box.scrollTop === last ? frames + 1 : 0) {
                last = box.scrollTop;
                await new Promise(requestAnimationFrame);
            }
        }"""
    )
    seen, below = top(page), from_end(page)
    wait_until(lambda: from_end(page) > below + 100, "a longer answer")
    assert top(page) == pytest.approx(seen, abs=2)


def wheel(page: Page, by: int) -> None:
    log(page).hover()
    page.mouse.wheel(0, by)


def left_the_end(page: Page) -> bool:
    """Turn the wheel up, as often as a person does whose browser is too busy to move within 600 ms (`hands.ts`).
    Returns whether the page has left the end."""
    if not jump(page).is_visible():
        wheel(page, -700)
        settle(page)
    return jump(page).is_visible()


def key(name: str) -> Callable[[Page], None]:
    def press(page: Page) -> None:
        log(page).focus()
        page.keyboard.press(name)

    return press


def swipe(page: Page, by: int) -> None:
    """Move a finger this many pixels down the screen, which scrolls up; a negative number scrolls down."""
    box = log(page).bounding_box()
    assert box is not None
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    session = page.context.new_cdp_session(page)
    for step in range(11):
        kind = "touchMove" if step else "touchStart"
        points = [{"x": x, "y": y + by * (step / 10 - 0.5)}]
        session.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})
    session.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
    session.detach()


def select_upwards(page: Page) -> None:
    """Select visible lines with the mouse."""
    box = log(page).bounding_box()
    assert box is not None
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x - 100, y - 100, steps=4)
    page.mouse.up()


LEAVING: dict[str, Callable[[Page], None]] = {
    "wheel": lambda page: wheel(page, -150),
    "a little wheel": lambda page: wheel(page, -12),
    "PageUp": key("PageUp"),
    "ArrowUp": key("ArrowUp"),
    "Home": key("Home"),
    "selecting": select_upwards,
}


@pytest.mark.parametrize("way", LEAVING)
def test_whoever_leaves_the_end_keeps_the_place_and_comes_back_with_a_key(
    open_page: People, server: Harness, chat_id: str, way: str
) -> None:
    page = open_page(f"/c/{chat_id}")
    grows(page, server, chat_id)
    LEAVING[way](page)
    stays(page)
    page.evaluate("getSelection().removeAllRanges()")
    if way.endswith("wheel"):
        wheel(page, 100_000)
    else:
        key("End")(page)
    follows_growth(page)
    server.command(chat_id, "abort")


THUMB = "box => (box.scrollTop + box.clientHeight / 2) / box.scrollHeight"
"""Returns the middle of the scroll bar's thumb, from 0 to 1."""


def follows_growth(page: Page) -> None:
    """Check that the end is followed again while the answer grows."""
    expect(jump(page)).to_have_count(0)
    whole = "box => box.scrollHeight"
    before = log(page).evaluate(whole)
    wait_until(lambda: log(page).evaluate(whole) > before + 100, "a longer answer")
    wait_until(lambda: from_end(page) <= 2, "the end, as soon as the new words are drawn")
    expect(jump(page)).to_have_count(0)


def test_a_finger_leaves_the_end_and_comes_back(open_page: People, server: Harness, chat_id: str) -> None:
    page = open_page(f"/c/{chat_id}", viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)
    grows(page, server, chat_id)
    swipe(page, 200)
    stays(page)

    def swiped() -> bool:
        swipe(page, -500)
        return jump(page).count() == 0

    wait_until(swiped, "the end, by swiping")
    follows_growth(page)
    server.command(chat_id, "abort")


def test_the_dragged_scroll_bar_leaves_the_end_and_comes_back(open_page: People, server: Harness, chat_id: str) -> None:
    long_chat(server, chat_id)
    page = open_page(f"/c/{chat_id}")
    grows(page, server, chat_id)
    box = log(page).bounding_box()
    assert box is not None
    bar = box["x"] + log(page).evaluate("box => (box.clientLeft + box.clientWidth + box.offsetWidth) / 2")
    page.mouse.move(bar, box["y"] + box["height"] - 20)
    page.mouse.down()
    middle = box["y"] + box["height"] / 2

    def dragged() -> bool:
        page.mouse.move(bar, middle + 10)
        page.mouse.move(bar, middle, steps=5)
        return jump(page).count() > 0

    wait_until(dragged, "the middle, by dragging")
    page.mouse.up()
    stays(page)
    page.mouse.move(bar, box["y"] + box["height"] * log(page).evaluate(THUMB))
    page.mouse.down()
    below = box["y"] + box["height"] + 400

    def dragged_down() -> bool:  # the answer may grow before the page handles the movement
        page.mouse.move(bar, below - 5)
        page.mouse.move(bar, below, steps=5)
        return jump(page).count() == 0

    wait_until(dragged_down, "the end, by dragging")
    page.mouse.up()
    follows_growth(page)
    server.command(chat_id, "abort")


def test_pictures_windows_and_keyboards_do_not_lose_the_end(open_page: People, server: Harness, chat_id: str) -> None:
    picture = "a" * 64
    long_chat(server, chat_id, LONG + f"![A picture](/v1/chats/{chat_id}/blobs/{picture})")
    waiting: list[Route] = []
    open_page.profile(viewport={"width": 390, "height": 844}).route(
        f"**/blobs/{picture}", lambda route: waiting.append(route)
    )
    page = open_page(f"/c/{chat_id}")
    follows(page)
    wait_until(lambda: waiting, "the picture is asked for")
    waiting[0].fulfill(body=TALL_PICTURE, content_type="image/svg+xml")
    wait_until(lambda: page.evaluate("document.querySelector('article img').clientHeight") > 300, "the picture")
    follows(page)
    page.get_by_role("textbox", name="Message").click()
    for height in (420, 844, 600, 844):  # a screen keyboard and the browser's bars appear and disappear
        page.set_viewport_size({"width": 390, "height": height})
        follows(page)
    page.set_viewport_size({"width": 1280, "height": 720})
    follows(page)
    page.get_by_role("button", name="Developer").click()
    expect(page.get_by_role("complementary", name="Developer")).to_be_visible()
    follows(page)


def test_a_reader_of_the_middle_stays_there_when_panels_and_windows_change(
    open_page: People, server: Harness, chat_id: str
) -> None:
    long_chat(server, chat_id)
    page = open_page(f"/c/{chat_id}")
    follows(page)
    wait_until(lambda: left_the_end(page), "place before the end")
    settle(page)
    seen = top(page)
    server.message(chat_id, call("send_mail", to="mara"))
    expect(question(page, "send_mail")).to_be_visible()
    page.set_viewport_size({"width": 1280, "height": 500})
    settle(page)
    page.set_viewport_size({"width": 1280, "height": 720})
    question(page, "send_mail").get_by_role("button", name="Deny", exact=True).click()
    ends(page, "send_mail", "denied")
    settle(page)
    assert top(page) == pytest.approx(seen, abs=2)
    expect(jump(page)).to_be_visible()


def test_what_is_unfolded_at_the_end_stays_in_sight(open_page: People, server: Harness, chat_id: str) -> None:
    page = open_page(f"/c/{chat_id}")
    page.set_viewport_size({"width": 1280, "height": 420})
    say(page, call("calculator", expression="1 + " * 40 + "1"))
    ends(page, "calculator", "done")
    server.at_rest(chat_id, 4)
    follows(page)
    card = page.locator("[data-tool=calculator] summary")
    before = card.bounding_box()
    card.click()
    expect(page.locator("[data-tool=calculator] h4").first).to_be_visible()
    settle(page)
    assert card.bounding_box() == before
    expect(jump(page)).to_be_visible()
    page.set_viewport_size({"width": 1280, "height": 400})
    settle(page)
    assert card.bounding_box() == before
    card.click()
    wheel(page, 1_000)
    follows(page)
