"""The line, the laptop's lid and the server: what goes in mid-answer is told, and nothing is lost or doubled."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from tests.browser.house import WORDS, House, People, answered, messages, say, shows
from tests.browser.line import Line, opened_line

pytestmark = pytest.mark.slow(20)

CONFIG = """
[models]
default = "demo/essay?words=120&rate=60"
"""

SILENCE_MS = 45_000
"""After which the page no longer believes in a line that says nothing."""


@pytest.fixture
def line(server: House, open_page: People) -> Iterator[Line]:
    open_page.expect_complaint("net::ERR_")  # of every request that a fault hits, also of the fixture's end
    with opened_line(server.url) as line:
        yield line


def standing(page: Page, said: str) -> None:
    """How the page says that it stands to the server."""
    expect(page.get_by_role("status").filter(has_text=said)).to_be_visible()


def test_a_laptop_that_was_offline_while_the_answer_went_on_shows_all_of_it(
    open_page: People, server: House, line: Line, chat_id: str
) -> None:
    pages = [open_page(f"/c/{chat_id}", url=line.url) for _ in range(2)]
    say(pages[0], "Write")
    expect(messages(pages[1]).nth(1)).to_have_text(WORDS)
    line.down()
    standing(pages[0], "offline")
    say(pages[0], "And what I wrote on the train")
    standing(pages[0], "1 waiting")
    server.at_rest(chat_id)
    server.message(chat_id, "Meanwhile, from a telephone")
    server.at_rest(chat_id, 4)
    line.up()
    for page in pages:
        standing(page, "live")
        answered(page, 6)
        shows(page, server.texts(chat_id))
    assert server.texts(chat_id)[2::2] == ["Meanwhile, from a telephone", "And what I wrote on the train"]


def test_a_line_that_fell_silent_is_given_up_after_three_quarters_of_a_minute(
    open_page: People, server: House, line: Line, chat_id: str
) -> None:
    open_page.profile().add_init_script("delete window.SharedWorker")  # whose clock cannot be put forward
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
    open_page: People, server: House, chat_id: str
) -> None:
    open_page.expect_complaint("net::ERR_|503")  # which is what a server answers until its store is there
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
