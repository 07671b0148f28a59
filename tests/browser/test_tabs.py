"""All tabs of one chat show the same, also a tab that opens or reloads during an answer, and also without a
SharedWorker."""

from urllib.parse import urlsplit

import pytest
from playwright.sync_api import expect

from tests.browser.harness import WORDS, Harness, People, answered, ask, messages, say, shows, wait_until

pytestmark = pytest.mark.slow(20)

CONFIG = """
[models]
default = "demo/essay?words=90&rate=60"
"""

NO_WORKER = "delete window.SharedWorker"
"""Chrome on Android has no SharedWorker."""


def test_nine_tabs_on_one_chat_show_the_same(open_page: People, server: Harness, chat_id: str) -> None:
    tabs = [open_page(f"/c/{chat_id}") for _ in range(9)]
    say(tabs[0], "What is a lease?")
    for tab in tabs:
        expect(messages(tab)).to_have_count(2)
    say(tabs[8], "Who holds it?")
    for tab in tabs:
        answered(tab, 4)
    server.at_rest(chat_id, 4)
    for tab in tabs:
        shows(tab, server.texts(chat_id))

    def is_same() -> bool:
        return len({tab.get_by_role("main").aria_snapshot() for tab in tabs[1:8]}) == 1  # nobody writes there

    wait_until(is_same, "nine equal tabs")


def test_a_page_that_is_loaded_again_in_mid_answer_goes_on(open_page: People, server: Harness, chat_id: str) -> None:
    page = open_page(f"/c/{chat_id}")
    say(page, "Write")
    expect(messages(page).nth(1)).to_have_text(WORDS)
    page.reload()
    expect(messages(page).nth(1)).to_have_text(WORDS)
    answered(page)
    server.at_rest(chat_id)
    shows(page, server.texts(chat_id))


def test_a_new_chat_has_an_address_which_is_a_link_and_a_step_of_the_history(
    open_page: People, server: Harness
) -> None:
    page = open_page("/")
    ask(page, "First of all")
    link = urlsplit(page.url).path
    assert link.startswith("/c/")
    chat_id = link.removeprefix("/c/")
    other = open_page(link, person="bob")
    shows(other, server.texts(chat_id))
    page.go_back()
    expect(messages(page)).to_have_count(0)
    assert urlsplit(page.url).path == "/"
    page.go_forward()
    shows(page, server.texts(chat_id))


def test_without_shared_workers_the_tabs_elect_one_that_has_the_connection(
    open_page: People, server: Harness, chat_id: str
) -> None:
    open_page.profile().add_init_script(NO_WORKER)
    streams: list[str] = []
    open_page.profile().on("request", lambda r: streams.append(r.url) if "subscribe" in r.url else None)
    first = open_page(f"/c/{chat_id}")
    second, third = open_page(f"/c/{chat_id}"), open_page(f"/c/{chat_id}")
    say(second, "What is a lease?")
    for tab in (first, second, third):
        answered(tab)
        shows(tab, server.texts(chat_id))
    assert len(streams) == 1, "a tab beside the elected one has a connection of its own"
    first.close()  # the tab with the connection
    say(third, "Who holds it?")
    for tab in (second, third):
        answered(tab, 4)
        shows(tab, server.texts(chat_id))
    assert len(streams) == 2
