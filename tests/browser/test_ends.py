"""Connections that fall silent, chats that are deleted elsewhere, and addresses without a chat."""

import re
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Page, expect

from tests.browser.axe import violations
from tests.browser.harness import LOOKS, Harness, People, answered, ask, messages, shows
from tests.browser.line import Line, opened_line

pytestmark = pytest.mark.slow(20)

QUIET_MS = 20_000
"""After this silence the page reports an overdue heartbeat (docs/page.md)."""

SILENCE_MS = 45_000
"""After this silence the client closes the connection (PROTOCOL §4)."""


@pytest.fixture
def line(server: Harness, open_page: People) -> Iterator[Line]:
    open_page.expect_complaint("net::ERR_")
    with opened_line(server.url) as line:
        yield line


def standing(page: Page, said: str) -> None:
    expect(page.get_by_role("status").filter(has_text=said)).to_be_visible()


@pytest.mark.parametrize("place", ["chat", "start"])
def test_a_silent_line_is_not_called_live_and_says_for_how_long(
    open_page: People, server: Harness, line: Line, chat_id: str, place: str
) -> None:
    open_page.profile().add_init_script("delete window.SharedWorker")  # because a test cannot advance a worker's clock
    open_page.profile().clock.install()
    page = open_page(f"/c/{chat_id}" if place == "chat" else "/", url=line.url)
    if place == "chat":
        ask(page, "Write")
    standing(page, "live")
    line.silent()
    page.clock.fast_forward(QUIET_MS)
    standing(page, "no data from the server")
    expect(page.get_by_text("for 2", exact=False).first).to_be_visible()
    expect(page.get_by_role("button", name="Try now")).to_be_visible()
    open_page.shoot_looks(page, f"silent-line-{place}")
    page.clock.fast_forward(SILENCE_MS - QUIET_MS)
    standing(page, "live")
    expect(page.get_by_text("no data from the server")).to_have_count(0)


def test_a_message_that_is_answered_while_the_line_is_silent_brings_another_line(
    open_page: People, server: Harness, line: Line, chat_id: str
) -> None:
    open_page.profile().add_init_script("delete window.SharedWorker")
    open_page.profile().clock.install()
    page = open_page(f"/c/{chat_id}", url=line.url)
    ask(page, "Write")
    line.silent()
    page.clock.fast_forward(QUIET_MS)
    standing(page, "no data from the server")
    ask(page, "Are you there?", 4)
    shows(page, server.texts(chat_id))
    standing(page, "live")


AWAY_SECONDS = 600
"""The pause that a busy server requests, longer than a test waits."""


@pytest.mark.parametrize("place", ["chat", "start"])
def test_try_now_tries_without_waiting_any_longer(open_page: People, chat_id: str, place: str) -> None:
    open_page.expect_complaint("status of 503")
    profile = open_page.profile()
    profile.add_init_script("delete window.SharedWorker")  # because playwright does not see a worker's requests
    busy = {"status": 503, "headers": {"Retry-After": str(AWAY_SECONDS)}, "body": '{"detail":"much to do"}'}
    streams = re.compile(r"/v1/chats/(subscribe|feed)")
    profile.route(streams, lambda route: route.fulfill(**busy))
    page = open_page(f"/c/{chat_id}" if place == "chat" else "/")
    standing(page, "much to do")
    expect(page.get_by_text(re.compile(r"again in \d+ s"))).to_be_visible()
    profile.unroute(streams)
    page.get_by_role("button", name="Try now").click()
    standing(page, "live")


def test_the_chat_and_the_start_page_say_when_they_try_again(open_page: People, line: Line, chat_id: str) -> None:
    pages = [open_page(f"/c/{chat_id}", url=line.url), open_page("/", url=line.url)]
    for page in pages:
        standing(page, "live")
    line.down()
    for page in pages:
        standing(page, "offline")
        expect(page.get_by_text("again in")).to_be_visible()
        expect(page.get_by_role("button", name="Try now")).to_be_visible()
        expect(page.get_by_text("network error")).to_have_count(0)  # the text is Chromium's
    open_page.shoot_looks(pages[0], "offline-chat")
    open_page.shoot_looks(pages[1], "offline-start")
    line.up()
    for page in pages:
        standing(page, "live")
        expect(page.get_by_role("button", name="Try now")).to_have_count(0)


@pytest.mark.parametrize("look", LOOKS)
def test_a_chat_that_was_deleted_elsewhere_takes_no_more_and_loses_nothing_that_was_written(
    open_page: People, server: Harness, chat_id: str, look: str
) -> None:
    open_page.expect_complaint("status of 404")
    other = f"{chat_id}-other"
    server.ask(other, "Another chat")
    server.ask(chat_id, "Hello there")
    open_page.profile("ann", **LOOKS[look])
    page = open_page(f"/c/{chat_id}")
    answered(page)
    page.get_by_role("textbox", name="Message").fill("Half a thought")
    server.delete(chat_id)
    standing(page, "deleted")
    expect(page.get_by_text("This chat was deleted.")).to_be_visible()
    expect(page.get_by_role("textbox", name="Message")).to_be_hidden()
    expect(page.get_by_role("button", name=re.compile("^(Regenerate|Edit|More)$"))).to_have_count(0)
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    for message, text in enumerate(("Hello there", "You said: Hello there")):
        messages(page).nth(message).get_by_role("button", name="Copy", exact=True).click()
        expect(messages(page).nth(message).get_by_role("button", name="Copied")).to_be_visible()
        assert page.evaluate("navigator.clipboard.readText()") == text
    expect(page.get_by_label("Your draft")).to_have_text("Half a thought")
    expect(messages(page)).to_have_count(2)
    expect(page.get_by_role("button", name="Open “Another chat”")).to_be_visible()
    open_page.shoot(page, f"deleted-elsewhere-{look}")
    assert violations(page) == []
    page.get_by_role("button", name="Use it in a new chat").click()
    expect(page.get_by_role("textbox", name="Message")).to_have_value("Half a thought")
    assert urlsplit(page.url).path == "/"
    page.go_back()
    expect(page.get_by_text("This chat does not exist")).to_be_visible()
    expect(page.get_by_text("Half a thought")).to_have_count(0)
    server.delete(other)


@pytest.mark.parametrize("path", ["/c/bad%20id!", "/c/feed", f"/c/{'x' * 129}"])
def test_an_address_that_no_chat_can_have_says_so(open_page: People, path: str) -> None:
    page = open_page(path)
    expect(page.get_by_role("heading", name="This address does not exist")).to_be_visible()
    expect(page.get_by_role("textbox", name="Message")).to_be_hidden()
    if "bad" in path:
        expect(page.get_by_text("bad id!")).to_be_visible()
        open_page.shoot_looks(page, "no-such-address")
    page.get_by_role("region", name="No such address").get_by_role("button", name="New chat").click()
    expect(page.get_by_role("textbox", name="Message")).to_be_visible()
    assert urlsplit(page.url).path == "/"
