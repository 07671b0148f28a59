"""The layout and the developer's drawer: faults and their recovery, time travel, and accessibility.

`web/client/test/live.test.ts` checks that a cut or a lost event does not change the text; these tests check what the
drawer shows.
"""

import json

import pytest
from playwright.sync_api import Page, expect

from tests.browser.axe import violations
from tests.browser.harness import PHONE, WORDS, Harness, People, answered, ask, messages, say, shows
from tests.browser.line import opened_line
from threadcast_protocol.wire.messages import JsonObject

CONFIG = """
[models]
default = "demo/essay?words=300&rate=40"
"""


def said(page: Page, text: str) -> None:
    """Return a note in the event log."""
    expect(page.get_by_role("log", name="Events").get_by_text(text).last).to_be_attached()


def open_drawer(page: Page) -> None:
    page.get_by_role("button", name="Developer").click()
    expect(page.get_by_role("log", name="Events")).to_be_visible()


@pytest.mark.parametrize(
    ("fault", "notes", "counts"),
    [
        pytest.param(
            "Cut the connection",
            ["cut by hand", "resuming after position"],
            ["1 resumed", "0 seen, 0 resynced"],
            id="a cut is resumed",
        ),
        pytest.param(
            "Drop an event",
            ["gap seen: expected event", "snapshot at position"],
            ["1 seen, 1 resynced"],
            id="a lost event is replaced by a snapshot",
        ),
    ],
)
def test_a_fault_during_an_answer_is_seen_and_the_text_goes_on(
    open_page: People, server: Harness, chat_id: str, fault: str, notes: list[str], counts: list[str]
) -> None:
    page = open_page(f"/c/{chat_id}")
    open_drawer(page)
    say(page, "Write")
    expect(messages(page).nth(1)).to_have_text(WORDS)
    page.get_by_role("button", name=fault).click()
    for note in notes:
        said(page, note)
    answered(page)
    shows(page, server.texts(chat_id))
    for count in counts:
        expect(page.get_by_role("region", name="Numbers")).to_contain_text(count)


def test_the_log_shows_each_event_and_a_run_what_it_was_made_of(
    open_page: People, server: Harness, chat_id: str
) -> None:
    page = open_page(f"/c/{chat_id}")
    open_drawer(page)
    ask(page, "Write")
    page.get_by_label("Show").select_option("stream_finished")
    finished = page.get_by_role("log", name="Events").locator("details").filter(has_text="stream_finished")
    finished.locator("summary").click()
    expect(finished.locator("pre")).to_contain_text('"finish_reason": "stop"')
    expect(page.get_by_role("log", name="Events").locator("details").filter(has_text="stream_delta")).to_have_count(0)
    page.get_by_role("tab", name="Runs").click()
    page.get_by_role("region", name="Runs").locator("summary").click()
    expect(page.get_by_role("tabpanel")).to_contain_text("Round 0: demo/essay")
    page.get_by_text("Messages (1)").click()
    expect(page.get_by_role("tabpanel").locator("pre")).to_contain_text("Write")


def test_the_past_is_shown_as_it_was_and_now_is_come_back_to(open_page: People, server: Harness, chat_id: str) -> None:
    snapshot = server.ask(chat_id, "Write")
    middle = int(snapshot["position"]) // 2
    page = open_page(f"/c/{chat_id}")
    answered(page)
    page.get_by_role("button", name="Time travel").click()
    page.get_by_role("slider", name="Position").fill(str(middle))
    expect(page.get_by_text(f"As it was at position {middle} of")).to_be_visible()
    shows(page, [str(message["content"]) for message in messages_at(server, chat_id, middle)])
    expect(page.get_by_role("textbox", name="Message")).to_be_hidden()
    page.keyboard.press("ArrowLeft")
    expect(page.get_by_text(f"As it was at position {middle - 1} of")).to_be_visible()
    server.ask(chat_id, "Meanwhile", 4)
    expect(messages(page)).to_have_count(2)
    page.keyboard.press("Escape")
    answered(page, 4)
    shows(page, server.texts(chat_id))
    expect(page.get_by_role("textbox", name="Message")).to_be_visible()


def messages_at(server: Harness, chat_id: str, position: int) -> list[JsonObject]:
    found: list[JsonObject] = server.get(f"/v1/chats/{chat_id}?at={position}")["messages"]
    return found


def test_who_is_offline_is_told_what_waits_and_may_try_at_once(
    open_page: People, server: Harness, chat_id: str
) -> None:
    open_page.expect_complaint("net::ERR_")
    with opened_line(server.url) as line:
        page = open_page(f"/c/{chat_id}", url=line.url)
        standing = page.locator("main > header").get_by_role("status")
        expect(standing).to_have_text("live")
        line.down()
        say(page, "One")
        say(page, "Two")
        expect(standing).to_contain_text("offline, 2 waiting to be sent")
        expect(page.get_by_role("button", name="Try now")).to_be_visible()
        line.up()
        try_now = page.get_by_role("button", name="Try now")
        try_now.evaluate_all("buttons => buttons.forEach((each) => each.click())")  # if still offline
        expect(standing).to_have_text("live")
        answered(page, 4)
    assert server.texts(chat_id)[::2] == ["One", "Two"]


def test_on_a_phone_the_list_slides_in_and_out_and_the_focus_goes_with_it(
    open_page: People, server: Harness, chat_id: str
) -> None:
    server.ask(chat_id, "Write")
    page = open_page("/", viewport=PHONE)
    chats = page.get_by_role("navigation", name="Chats")
    expect(chats).to_be_hidden()
    page.get_by_role("button", name="Chats").click()
    expect(chats).to_be_visible()
    expect(chats.locator(":focus")).to_have_count(1)
    page.keyboard.press("Escape")
    expect(chats).to_be_hidden()
    expect(page.get_by_role("button", name="Chats")).to_be_focused()
    page.get_by_role("button", name="Chats").click()
    chats.get_by_role("link", name="Write").first.click()
    expect(chats).to_be_hidden()
    answered(page)
    open_drawer(page)
    page.keyboard.press("Escape")
    expect(page.get_by_role("log", name="Events")).to_be_hidden()
    assert page.evaluate("document.documentElement.scrollWidth") == PHONE["width"]


def test_keys_alone_open_what_there_is_and_leave_it_again(open_page: People, server: Harness, chat_id: str) -> None:
    page = open_page(f"/c/{chat_id}")
    ask(page, "Write")
    page.get_by_role("textbox", name="Message").fill("what? just text")
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.get_by_role("textbox", name="Message").blur()
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keyboard shortcuts")).to_be_visible()
    page.keyboard.press("Escape")
    page.keyboard.press("/")
    expect(page.get_by_role("searchbox", name="Search chats")).to_be_focused()
    page.get_by_role("searchbox", name="Search chats").blur()
    page.keyboard.press("k")
    assert messages(page).last.evaluate("message => message === document.activeElement")
    page.keyboard.press("d")
    expect(page.get_by_role("log", name="Events")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("log", name="Events")).to_have_count(0)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [{"width": 1280, "height": 800}, PHONE], ids=["desk", "phone"])
def test_axe_finds_nothing_serious_on_the_main_screens(
    open_page: People, server: Harness, chat_id: str, scheme: str, size: dict[str, int]
) -> None:
    page = open_page("/", viewport=size, color_scheme=scheme, reduced_motion="reduce")
    name = f"phone{'-dark' * (scheme == 'dark')}" if size == PHONE else scheme
    found = {"start": violations(page)}
    open_page.shoot(page, f"screen-start-{name}")
    page.goto(f"{server.url}/c/{chat_id}")
    ask(page, "Write")
    found["chat"] = violations(page)
    open_page.shoot(page, f"screen-chat-{name}")
    open_drawer(page)
    found["drawer"] = violations(page)
    open_page.shoot(page, f"screen-drawer-{name}")
    page.get_by_role("tab", name="Runs").click()
    page.get_by_role("region", name="Runs").locator("summary").click()
    expect(page.get_by_text("System prompt")).to_be_visible()
    found["runs"] = violations(page)
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Time travel").click()
    expect(page.get_by_role("slider", name="Position")).to_be_focused()
    page.keyboard.press("ArrowLeft")
    expect(page.get_by_text("As it was at position")).to_be_visible()
    found["past"] = violations(page)
    open_page.shoot(page, f"screen-past-{name}")
    page.keyboard.press("Escape")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_be_visible()
    found["shortcuts"] = violations(page)
    assert not any(found.values()), json.dumps(found, indent=1)
