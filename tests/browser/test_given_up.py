"""The chat shows what the server gave up: a command that killed its workers, and a title that no model could write."""

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.harness import Harness, People, ask, say
from tests.support.server import ROOT

pytestmark = pytest.mark.slow(30)

DEADLY = ROOT / "tests/resources/greedy_tools.py"
"""With this setting a message "poison" ends the server that processes it."""

FAST = """
[limits]
lease_seconds = 1.0
beat_seconds = 0.3
sweep_seconds = 0.2
"""

DEATHS = 3


@pytest.fixture
def deadly(tmp_path: Path, built_page: None) -> Iterator[Harness]:
    with closing(Harness(tmp_path, FAST, DEADLY)) as harness:
        harness.start()
        yield harness


def test_a_message_that_killed_its_servers_is_given_up_in_the_chat_and_comes_back_to_who_wrote_it(
    browser: Browser, deadly: Harness
) -> None:
    with closing(People(browser, deadly.url, "given-up")) as people:
        people.expect_complaint("net::ERR_|Failed to load resource")  # while the server is down
        page = people("/c/deadly")
        ask(page, "Hello")
        say(page, "this is poison")
        for _ in range(DEATHS):
            deadly.wait_for_end()
            deadly.start()
        report = page.get_by_label("What went wrong")
        expect(report).to_contain_text("The command was given up: its server died three times")
        expect(report.get_by_role("button", name="Retry")).to_have_count(0)
        expect(page.get_by_role("textbox", name="Message")).to_have_value("this is poison")
        people.shoot_looks(page, "given-up")
        page.reload()
        expect(report).to_contain_text("The command was given up")
        page.get_by_role("textbox", name="Message").fill("still there?")
        page.get_by_role("button", name="Send", exact=True).click()
        expect(page.get_by_text("You said: still there?", exact=True)).to_be_visible()


def test_a_title_that_no_model_could_make_is_told(browser: Browser, new_harness: Callable[..., Harness]) -> None:
    harness = new_harness('[models]\ntitle = "demo/error?code=auth_failed&at=start"\n')
    with closing(People(browser, harness.url, "no-title")) as people:
        page = people("/")
        say(page, "Tell me of tides")
        expect(page.get_by_text("The model for titles failed, so the chat keeps its title")).to_be_visible()
        expect(page.get_by_role("heading", name="Tell me of tides")).to_be_visible()
        expect(page.get_by_label("What went wrong")).to_have_count(0)
