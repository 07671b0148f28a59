"""The message box: no text is lost, waiting messages can be changed, and settings apply to the next answer."""

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.harness import Harness, People, answered, ask, messages, say, shows, wait_until
from tests.browser.line import Line, opened_line

CONFIG = """
[models]
default = "demo/echo"

[profiles.agent]
params = { temperature = 0.3 }

[profiles.desk]
title = "Desk"
system_prompt = "You help at the desk."
"""

SLOW = {"model": "demo/slow?delay=600"}
"""A model that does not answer before the test ends."""

PASTE = """([name, bytes, picture]) => {
    const png = Uint8Array.from(atob(picture), (character) => character.charCodeAt(0));
    const all = new Uint8Array(Math.max(bytes, png.length));
    all.set(png);
    const data = new DataTransfer();
    data.items.add(new File([all], name, { type: "image/png" }));
    const event = new ClipboardEvent("paste", { clipboardData: data, bubbles: true, cancelable: true });
    document.activeElement.dispatchEvent(event);
}"""
PICTURE = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNkYAAAAAYAAjCB0C8AAAAASUVORK5CYII="


def paste(page: Page, name: str, size_bytes: int) -> None:
    """Paste a picture of at least this many bytes from the clipboard."""
    box(page).focus()
    page.evaluate(PASTE, [name, size_bytes, PICTURE])


@pytest.fixture
def line(server: Harness) -> Iterator[Line]:
    with opened_line(server.url) as line:
        yield line


def box(page: Page) -> Locator:
    return page.get_by_role("textbox", name="Message")


def queue(page: Page) -> Locator:
    return page.get_by_role("list", name="Waiting messages").get_by_role("listitem")


def test_what_waits_is_listed_reworded_put_first_and_taken_back_in_every_tab(
    open_page: People, server: Harness, chat_id: str
) -> None:
    server.message(chat_id, "Work", params=SLOW)
    one, two = open_page(f"/c/{chat_id}"), open_page(f"/c/{chat_id}")
    expect(one.get_by_role("button", name="Queue")).to_be_visible()
    for text in ("alpha", "beta", "gamma"):
        say(one, text)
    expect(queue(two)).to_have_count(3)
    queue(two).filter(has_text="beta").get_by_role("button", name="Edit").click()
    two.get_by_role("textbox", name="Waiting message").fill("better")
    two.keyboard.press("Enter")
    expect(queue(one).nth(1)).to_contain_text("better")
    queue(one).filter(has_text="alpha").get_by_role("button", name="Cancel").click()
    expect(queue(two)).to_have_count(2)
    queue(two).filter(has_text="gamma").get_by_role("button", name="Next").click()
    expect(queue(one).first).to_contain_text("gamma")
    expect(queue(one).first).to_contain_text("next")
    box(one).press("Escape")
    answered(two, 5)
    assert [text for text in server.texts(chat_id) if text in ("alpha", "better", "gamma")] == ["gamma", "better"]


def test_a_draft_survives_a_reload_and_belongs_to_its_chat(open_page: People, server: Harness, chat_id: str) -> None:
    server.ask(chat_id, "Hello")
    page = open_page(f"/c/{chat_id}")
    box(page).fill("half a thought\nand a line")
    page.reload()
    expect(box(page)).to_have_value("half a thought\nand a line")
    page.get_by_role("button", name="New chat").click()
    expect(box(page)).to_have_value("")
    page.go_back()
    expect(box(page)).to_have_value("half a thought\nand a line")
    box(page).press("Enter")
    answered(page, 4)
    page.reload()
    answered(page, 4)
    expect(box(page)).to_have_value("")


def test_what_the_server_refuses_comes_back_to_be_written_shorter(open_page: People, chat_id: str) -> None:
    open_page.expect_complaint("413")
    page = open_page(f"/c/{chat_id}")
    box(page).fill("long " * 60_000)
    box(page).press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("text")
    expect(box(page)).to_have_value("long " * 60_000)
    box(page).fill("short")
    box(page).press("Enter")
    answered(page)


def test_what_is_written_on_a_dead_line_is_shown_as_not_sent_and_goes_out_later(
    open_page: People, server: Harness, line: Line, chat_id: str
) -> None:
    open_page.expect_complaint("net::ERR_")
    page = open_page(f"/c/{chat_id}", url=line.url)
    ask(page, "Hello")
    line.down()
    expect(page.get_by_role("status").filter(has_text="offline")).to_be_visible()
    say(page, "from the tunnel")
    expect(queue(page)).to_contain_text(["not sent yet"])
    page.get_by_role("button", name="New chat").click()
    line.up()
    server.at_rest(chat_id, 4)
    page.go_back()
    shows(page, server.texts(chat_id))
    expect(queue(page)).to_have_count(0)


def test_a_pasted_picture_shows_how_far_it_is_and_goes_with_the_message(open_page: People, server: Harness) -> None:
    page = open_page("/")
    network = page.context.new_cdp_session(page)
    slow = {"offline": False, "latency": 0, "downloadThroughput": -1, "uploadThroughput": 200_000}
    network.send("Network.emulateNetworkConditions", slow)
    paste(page, "tower.png", 1_000_000)
    bar = page.get_by_role("progressbar", name="Upload of tower.png")
    expect(bar).to_be_visible()
    wait_until(lambda: 0.1 < float(bar.get_attribute("value") or 0) < 1, "progress")
    network.send("Network.emulateNetworkConditions", slow | {"uploadThroughput": -1})
    expect(bar).to_have_count(0)
    files = page.get_by_role("list", name="Attachments").get_by_role("listitem")
    expect(files).to_contain_text(["tower.png"])
    paste(page, "unwanted.png", 100)
    page.get_by_role("button", name="Remove unwanted.png").click()
    expect(files).to_have_count(1)
    page.reload()
    expect(files.locator("img")).to_be_visible()
    ask(page, "What is on it?")
    expect(files).to_have_count(0)
    parts = server.chat(page.url.rpartition("/")[2])["messages"][0]["content"]
    assert sorted(part["type"] for part in parts) == ["image_url", "text"]


def test_a_file_that_is_too_large_is_refused_before_it_travels(page: Page) -> None:
    paste(page, "huge.png", 12_500_000)
    expect(page.get_by_role("alert", name="Not attached")).to_contain_text(
        re.compile("huge.png: 1[23] MB, and at most 12 MB can be attached. Choose a smaller one")
    )
    expect(page.get_by_role("button", name="Send")).to_be_disabled()


def test_settings_say_where_values_come_from_and_change_who_answers_next(
    open_page: People, server: Harness, chat_id: str
) -> None:
    page, other = open_page(f"/c/{chat_id}"), open_page(f"/c/{chat_id}")
    ask(page, "Hello")
    page.get_by_role("button", name="Settings").click()
    settings = page.get_by_role("dialog", name="Settings")
    temperature = settings.locator("[data-param=temperature]")
    expect(temperature).to_contain_text("from the mode")
    expect(settings.get_by_role("textbox", name="Temperature")).to_have_value("0.3")
    settings.get_by_role("textbox", name="Temperature").fill("0,9")
    settings.get_by_role("textbox", name="Temperature").press("Tab")
    expect(temperature).to_contain_text("set in this chat")
    settings.get_by_role("button", name="Reset Temperature").click()
    expect(settings.get_by_role("textbox", name="Temperature")).to_have_value("0.3")
    settings.get_by_role("textbox", name="Temperature").fill("3")
    settings.get_by_role("textbox", name="Temperature").press("Tab")
    expect(temperature).to_contain_text("from 0 to 2")
    settings.get_by_role("combobox", name="Model").select_option("demo/tools")
    settings.get_by_role("tab", name="Tools").click()
    settings.get_by_role("switch", name=re.compile("^clock")).uncheck()
    settings.get_by_role("button", name="Close").click()
    expect(other.get_by_role("combobox", name="Model")).to_have_value("demo/tools")
    ask(page, "What time is it, and what is 6 * 7?", 4)
    found = server.chat(chat_id)
    assert found["messages"][-1]["model"] == "demo/tools"
    called = [call["function"]["name"] for message in found["messages"] for call in message.get("tool_calls", [])]
    assert called == ["calculator"]


def test_a_chat_begins_with_the_model_that_was_picked_before_its_first_word(page: Page, server: Harness) -> None:
    box(page).fill("Hello")
    page.get_by_role("combobox", name="Model").select_option("demo/reasoning")
    page.get_by_role("combobox", name="Mode", exact=True).select_option("Desk")
    expect(box(page)).to_have_value("Hello")
    box(page).press("Enter")
    answered(page)
    found = server.chat(page.url.rpartition("/")[2])
    assert (found["messages"][-1]["model"], found["thread"]["mode"]) == ("demo/reasoning", "desk")


def test_others_see_that_somebody_types_and_the_typist_does_not(
    open_page: People, server: Harness, chat_id: str
) -> None:
    server.ask(chat_id, "Hello")
    ann, bob = open_page(f"/c/{chat_id}"), open_page(f"/c/{chat_id}", person="bob")
    answered(ann)
    answered(bob)
    box(ann).press_sequentially("I thi")
    expect(bob.get_by_text("is typing…")).to_be_visible()
    expect(ann.get_by_text("is typing…")).to_have_count(0)
    box(ann).press("Enter")
    expect(bob.get_by_text("is typing…")).to_have_count(0)


def test_the_last_message_is_written_anew_from_the_empty_box(open_page: People, server: Harness, chat_id: str) -> None:
    page = open_page(f"/c/{chat_id}")
    ask(page, "Helo")
    box(page).press("ArrowUp")
    expect(box(page)).to_have_value("Helo")
    box(page).press("Escape")
    expect(box(page)).to_have_value("")
    box(page).press("ArrowUp")
    box(page).fill("Hello")
    box(page).press("Enter")
    expect(messages(page).first).to_contain_text("Hello")
    answered(page)
    assert server.texts(chat_id)[0] == "Hello"
    assert len(server.chat(chat_id)["messages"][0]["sibling_ids"]) == 2


def test_a_tool_that_is_always_allowed_can_be_made_to_ask_again(
    open_page: People, server: Harness, chat_id: str
) -> None:
    note = {"model": "demo/tools?rate=0"}
    server.message(chat_id, 'call write_note {"name": "side.md", "text": "x"}', params=note)
    page = open_page(f"/c/{chat_id}")
    expect(page.get_by_role("navigation").get_by_role("link", name="needs you")).to_have_count(1)
    call_id = server.chat(chat_id)["runtime"]["pause_reasons"][0]["tool_call_id"]
    server.command(chat_id, "tool_decision", tool_call_id=call_id, accepted=True, remember="tool")
    server.at_rest(chat_id, 4)
    page.get_by_role("button", name="Settings").click()
    page.get_by_role("tab", name="Approvals").click()
    page.get_by_role("button", name="Ask again about write_note").click()
    expect(page.get_by_text("There are no tools here yet.")).to_be_visible()
    assert server.get(f"/v1/chats/{chat_id}/approvals") == {"tools": []}


def test_the_chosen_theme_is_shown_whatever_the_system_likes_and_survives_a_reload(open_page: People) -> None:
    page = open_page("/")
    whole = page.locator("html")
    page.emulate_media(color_scheme="light")
    expect(whole).to_have_css("background-color", "rgb(251, 252, 251)")
    page.get_by_role("button", name="Settings").click()
    page.get_by_role("tab", name="This browser").click()
    page.get_by_role("radio", name="Dark").check()
    expect(whole).to_have_css("background-color", "rgb(19, 24, 22)")
    page.reload()
    expect(whole).to_have_css("background-color", "rgb(19, 24, 22)")
    page.emulate_media(color_scheme="dark")
    page.get_by_role("button", name="Settings").click()
    page.get_by_role("tab", name="This browser").click()
    page.get_by_role("radio", name="Light").check()
    expect(whole).to_have_css("background-color", "rgb(251, 252, 251)")
