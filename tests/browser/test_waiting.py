"""Waiting messages: their buttons are always visible, a waiting message can be sent next or stop the answer, and unsent
messages can be taken back."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Locator, Page, Route, expect

from tests.browser.harness import LOOKS, Harness, People, answered, ask, messages, say, shows, wait_until
from tests.browser.line import Line, opened_line
from threadcast_protocol.wire.messages import JsonObject

CONFIG = """
[models]
default = "demo/echo"
"""

HANG = {"model": "demo/hang?after=30&rate=0"}
"""A model that writes thirty words and never ends."""

LONG = "Please look at the harbour fees of the third quarter, and tell me why they are so much higher than before. " * 3
WORD = "x" * 400
RTL = "مرحبا، هذا نص طويل جدا من اليمين إلى اليسار لكي نرى كيف يبدو في قائمة الانتظار عندما لا يتسع له السطر الواحد"


@pytest.fixture
def line(server: Harness) -> Iterator[Line]:
    with opened_line(server.url) as line:
        yield line


def box(page: Page) -> Locator:
    return page.get_by_role("textbox", name="Message", exact=True)


def queue(page: Page) -> Locator:
    return page.get_by_role("list", name="Waiting messages").get_by_role("listitem")


def is_inside(page: Page, part: Locator) -> bool:
    """Check that an element is fully visible and can be clicked."""
    shape, size = part.bounding_box(), page.viewport_size
    assert shape is not None and size is not None
    return shape["x"] >= 0 and shape["x"] + shape["width"] <= size["width"]


def hanging(server: Harness, chat_id: str, *waiting: str) -> None:
    server.message(chat_id, "Write on and on", params=HANG)
    for text in waiting:
        server.message(chat_id, text)


@pytest.mark.parametrize("look", LOOKS)
def test_long_words_of_any_script_never_push_the_buttons_of_a_row_out_of_sight(
    open_page: People, server: Harness, chat_id: str, look: str
) -> None:
    hanging(server, chat_id, LONG, WORD, RTL, "short")
    page = open_page(f"/c/{chat_id}", **LOOKS[look])
    expect(queue(page)).to_have_count(4)
    beside = "list => list.scrollWidth - list.clientWidth"
    assert page.get_by_role("list", name="Waiting messages").evaluate(beside) <= 0, "it is not scrolled sideways"
    box(page).fill("And this one")
    for row in range(4):
        for name in ("Edit", "Next", "Stop and send", "Cancel"):
            button = queue(page).nth(row).get_by_role("button", name=name, exact=True)
            button.scroll_into_view_if_needed()
            assert is_inside(page, button), (row, name)
            button.click(trial=True)
        words = queue(page).nth(row).bounding_box()
        assert words is not None and words["height"] < 90, "a line or two"
    for name in ("Next", "Stop and send", "Stop", "Queue"):
        button = page.locator("form").get_by_role("button", name=name, exact=True)
        assert is_inside(page, button), name
        button.click(trial=True)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    queue(page).first.scroll_into_view_if_needed()
    open_page.shoot(page, f"queue-long-words-{look}")


@pytest.mark.parametrize("look", LOOKS)
def test_a_hundred_rows_scroll_and_leave_room_for_the_chat(
    open_page: People, server: Harness, chat_id: str, look: str
) -> None:
    hanging(server, chat_id, *(f"row {number}" for number in range(100)))
    page = open_page(f"/c/{chat_id}", **LOOKS[look])
    expect(queue(page)).to_have_count(100)
    shape = page.get_by_role("list", name="Waiting messages").bounding_box()
    size = page.viewport_size
    assert shape is not None and size is not None and shape["height"] <= size["height"] * 0.41
    expect(box(page)).to_be_in_viewport()
    whole = "rows => rows.every((row) => row.scrollHeight <= row.clientHeight)"
    assert queue(page).evaluate_all(whole), "a row is as high as what stands in it"
    last = queue(page).nth(99)
    last.scroll_into_view_if_needed()
    open_page.shoot(page, f"queue-of-a-hundred-{look}")
    last.get_by_role("button", name="Edit").click()
    page.get_by_role("textbox", name="Waiting message").fill("the last one")
    page.keyboard.press("Enter")
    expect(queue(page).nth(99)).to_contain_text("the last one")
    queue(page).nth(99).get_by_role("button", name="Stop and send").click()
    wait_until(lambda: "the last one" in server.texts(chat_id)[:3], "the last row, sent though the queue is full")


@pytest.mark.row("CMD-17")
@pytest.mark.parametrize("way", ["button", "keys"])
def test_stop_and_send_ends_the_answer_keeps_it_and_goes_before_all_that_waits(
    open_page: People, server: Harness, chat_id: str, way: str
) -> None:
    hanging(server, chat_id, "later")
    page, other = open_page(f"/c/{chat_id}"), open_page(f"/c/{chat_id}")
    expect(queue(page)).to_have_count(1)
    box(page).fill("rather this")
    if way == "keys":
        box(page).press("Control+Enter")
    else:
        page.get_by_role("button", name="Stop and send").last.click()
    answered(other, 6)
    texts = server.texts(chat_id)
    assert texts[2:] == ["rather this", "You said: rather this", "later", "You said: later"]
    assert texts[1], "what was said is kept"
    shows(page, texts)
    if way == "button":
        open_page.shoot_looks(page, "stopped-and-sent")
    expect(box(page)).to_have_value("")


@pytest.mark.parametrize("way", ["button", "keys"])
@pytest.mark.parametrize("place", ["message", "composer"])
def test_an_old_message_that_is_written_anew_stops_the_answer_too(
    open_page: People, server: Harness, chat_id: str, way: str, place: str
) -> None:
    page = open_page(f"/c/{chat_id}")
    ask(page, "old words")
    if place == "message":
        messages(page).first.hover()
        messages(page).first.get_by_role("button", name="Edit").click()
    else:
        box(page).press("ArrowUp")
    writing = page.get_by_role("textbox", name="Edit message") if place == "message" else box(page)
    expect(writing).to_have_value("old words")
    hanging(server, chat_id, "later")  # another device sends a message
    expect(queue(page)).to_have_count(1)
    writing.fill("other words")
    if way == "button":
        open_page.shoot_looks(page, f"rewriting-in-the-{place}")
    if way == "keys":
        writing.press("Control+Enter")
    else:
        page.locator("form").filter(has=writing).get_by_role("button", name="Stop and send", exact=True).click()
    answered(page, 4)
    assert server.texts(chat_id) == ["other words", "You said: other words", "later", "You said: later"]
    expect(page.get_by_role("alert")).to_be_empty()
    expect(writing).to_have_count(0) if place == "message" else expect(writing).to_have_value("")


def test_an_old_message_that_is_written_anew_waits_its_turn_or_is_next(
    open_page: People, server: Harness, chat_id: str
) -> None:
    page = open_page(f"/c/{chat_id}")
    ask(page, "old words")
    hanging(server, chat_id, "later")
    expect(queue(page)).to_have_count(1)
    for count, (key, words) in enumerate((("Enter", "in its turn"), ("Alt+Enter", "sooner")), start=2):
        messages(page).first.hover()
        messages(page).first.get_by_role("button", name="Edit").click()
        writing = page.get_by_role("textbox", name="Edit message")
        writing.fill(words)
        writing.press(key)
        expect(queue(page)).to_have_count(count)
    expect(queue(page)).to_contain_text(["sooner", "later", "in its turn"])


@pytest.mark.parametrize("way", ["button", "keys"])
def test_next_waits_for_the_step_and_goes_before_the_others(
    open_page: People, server: Harness, chat_id: str, way: str
) -> None:
    hanging(server, chat_id, "later")
    page = open_page(f"/c/{chat_id}")
    expect(queue(page)).to_have_count(1)
    box(page).fill("sooner")
    if way == "keys":
        box(page).press("Alt+Enter")
    else:
        page.locator("form").get_by_role("button", name="Next").click()
    expect(queue(page).first).to_contain_text("sooner")
    expect(queue(page).first).to_contain_text("next")
    expect(queue(page).first.get_by_role("button", name="Next")).to_have_count(0)
    assert len(server.texts(chat_id)) == 2, "the answer goes on"
    box(page).fill("And this?")
    if way == "button":
        open_page.shoot_looks(page, "next-or-stop-and-send")
    box(page).fill("")
    page.get_by_role("button", name="Stop", exact=True).click()
    answered(page, 6)
    assert server.texts(chat_id)[2::2] == ["sooner", "later"]


def test_a_waiting_row_is_sent_at_once(open_page: People, server: Harness, chat_id: str) -> None:
    hanging(server, chat_id, "one")
    server.message(chat_id, "two", params={"model": "demo/echo"})
    page = open_page(f"/c/{chat_id}")
    queue(page).filter(has_text="two").get_by_role("button", name="Stop and send").click()
    answered(page, 6)
    assert server.texts(chat_id)[2::2] == ["two", "one"]


def test_the_list_of_keys_says_what_the_keys_do(open_page: People, page: Page) -> None:
    box(page).blur()
    page.keyboard.press("?")
    keys = page.get_by_role("dialog", name="Keyboard shortcuts")
    expect(keys).to_contain_text("Stop the answer and send now")
    expect(keys).to_contain_text("Send after the present step")
    open_page.shoot_looks(page, "keys")


def test_words_for_a_row_that_is_taken_up_meanwhile_are_not_lost(
    open_page: People, server: Harness, chat_id: str
) -> None:
    hanging(server, chat_id, "raw words")
    page = open_page(f"/c/{chat_id}")
    queue(page).first.get_by_role("button", name="Edit").click()
    page.get_by_role("textbox", name="Waiting message").fill("better words")
    server.command(chat_id, "abort")
    expect(queue(page)).to_contain_text(["better words"])
    queue(page).get_by_role("button", name="Put back").click()
    expect(box(page)).to_have_value("better words")


# without a line


def test_held_messages_are_taken_back_or_written_anew_without_a_line(
    open_page: People, server: Harness, line: Line, chat_id: str
) -> None:
    open_page.expect_complaint("net::ERR_|404")
    page = open_page(f"/c/{chat_id}", url=line.url)
    ask(page, "Hello")
    line.down()
    expect(page.get_by_role("status").filter(has_text="offline")).to_be_visible()
    for text in ("first", "second", "third", "fourth"):
        say(page, text)
    expect(queue(page)).to_have_count(4)
    open_page.shoot_looks(page, "held-offline")
    queue(page).filter(has_text="third").get_by_role("button", name="Cancel").click()
    expect(queue(page)).to_have_count(3)  # the message was never posted, so it disappears
    queue(page).filter(has_text="second").get_by_role("button", name="Edit").click()
    expect(box(page)).to_have_value("second")
    expect(queue(page)).to_have_count(2)
    expect(page.get_by_role("status").filter(has_text="offline, 2 waiting to be sent")).to_be_visible()
    queue(page).filter(has_text="first").get_by_role("button", name="Cancel").click()
    expect(queue(page).filter(has_text="first")).to_contain_text("being taken back")  # the server may have the message
    expect(page.get_by_role("status").filter(has_text="offline, 1 waiting to be sent")).to_be_visible()
    queue(page).filter(has_text="fourth").get_by_role("button", name="Cancel").click()
    expect(page.get_by_text("waiting to be sent")).to_have_count(0)
    expect(queue(page)).to_contain_text(["being taken backfirst"])  # the last row has no number
    say(page, "fourth")
    open_page.shoot_looks(page, "held-taken-back")
    box(page).fill("better")
    line.up()
    expect(queue(page)).to_have_count(0)
    box(page).press("Enter")
    answered(page, 6)
    assert server.texts(chat_id)[::2] == ["Hello", "fourth", "better"]


def test_a_message_that_had_got_through_is_taken_back_when_the_line_is_there_and_else_that_is_said(
    open_page: People, server: Harness, line: Line, chat_id: str
) -> None:
    """The answer to the POST is lost, so the page cannot know whether the server has the message."""
    open_page.expect_complaint("net::ERR_|404")
    server.message(chat_id, "Write on and on", params=HANG)
    page = open_page(f"/c/{chat_id}", url=line.url)
    expect(page.get_by_role("button", name="Queue")).to_be_visible()

    def answer_is_lost(route: Route) -> None:
        body: JsonObject = route.request.post_data_json or {}
        line.down()
        server.command(chat_id, body.pop("type"), **body)
        route.abort()

    page.route("**/commands", answer_is_lost, times=1)
    say(page, "unwanted")
    queue(page).filter(has_text="not sent yet").get_by_role("button", name="Cancel").click()
    expect(queue(page).filter(has_text="unwanted").last).to_contain_text("being taken back")
    line.up()
    expect(queue(page)).to_have_count(0)
    assert server.chat(chat_id)["runtime"]["queue_size"] == 0, "the server had it, and has it no more"
    page.route("**/commands", answer_is_lost, times=1)
    say(page, "too late")
    server.command(chat_id, "abort")
    server.at_rest(chat_id, 4)
    queue(page).filter(has_text="too late").last.get_by_role("button", name="Cancel").click()
    line.up()
    expect(page.get_by_role("alert")).to_contain_text("because it was already answered: “too late”")
    answered(page, 4)
