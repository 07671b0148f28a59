"""A connection, a laptop or a server that fails during an answer: the page reports it, and no text is lost or
doubled."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from tests.browser.harness import WORDS, Harness, People, answered, messages, say, shows
from tests.browser.line import Line, opened_line

pytestmark = pytest.mark.slow(20)

CONFIG = """
[models]
default = "demo/essay?words=120&rate=60"
"""

SILENCE_MS = 45_000
"""After this silence the page treats the connection as dead."""


@pytest.fixture
def line(server: Harness, open_page: People) -> Iterator[Line]:
    open_page.expect_complaint("net::ERR_")  # any request during a fault reports this error, also at the end
    with opened_line(server.url) as line:
        yield line


def standing(page: Page, said: str) -> None:
    """Return the element that shows the state of the connection."""
    expect(page.get_by_role("status").filter(has_text=said)).to_be_visible()


def test_a_laptop_that_was_offline_while_the_answer_went_on_shows_all_of_it(
    open_page: People, server: Harness, line: Line, chat_id: str
) -> None:
    pages = [open_page(f"/c/{chat_id}", url=line.url) for _ in range(2)]
    say(pages[0], "Write")
    expect(messages(pages[1]).nth(1)).to_have_text(WORDS)
    line.down()
    standing(pages[0], "offline")
    say(pages[0], "And what I wrote on the train")
    standing(pages[0], "1 waiting")
    server.at_rest(chat_id)
    server.ask(chat_id, "Meanwhile, from a telephone", 4)
    line.up()
    for page in pages:
        standing(page, "live")
        answered(page, 6)
        shows(page, server.texts(chat_id))
    assert server.texts(chat_id)[2::2] == ["Meanwhile, from a telephone", "And what I wrote on the train"]


def test_a_line_that_fell_silent_is_given_up_after_three_quarters_of_a_minute(
    open_page: People, server: Harness, line: Line, chat_id: str
) -> None:
    open_page.profile().add_init_script("delete window.SharedWorker")  # because a test cannot advance a worker's clock
    open_page.profile().clock.install()
    page = open_page(f"/c/{chat_id}", url=line.url)
    say(page, "Write")
    expect(messages(page).nth(1)).to_have_text(WORDS)
    line.silent()
    asked, answer = [message["content"] for message in server.at_rest(chat_id)["messages"]]
    expect(messages(page).nth(1)).not_to_contain_text(" ".join(answer.split()[-5:]))
    page.clock.fast_forward(SILENCE_MS)
    answered(page)
    shows(page, [asked, answer])


def test_a_server_killed_in_mid_answer_and_started_again_goes_on_in_every_tab(
    open_page: People, server: Harness, chat_id: str
) -> None:
    open_page.expect_complaint("net::ERR_|503")  # a server answers 503 until its store is ready
    pages = [open_page(f"/c/{chat_id}") for _ in range(2)]
    server.message(chat_id, "Write", params={"model": "demo/essay?words=240&rate=60"})
    for page in pages:
        expect(messages(page).nth(1)).to_have_text(WORDS)
    server.kill()
    standing(pages[0], "offline")
    say(pages[0], "Are you there?")
    server.start()
    server.at_rest(chat_id, 4)
    for page in pages:
        answered(page, 4)
        shows(page, server.texts(chat_id))
    assert len(server.texts(chat_id)[1].split()) == 240
