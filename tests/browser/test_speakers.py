"""An answer in which one agent hands over to another: the page names each agent when it begins to speak."""

from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.browser.harness import Harness, People

APP = Path(__file__).with_name("agents_of_test_speakers.py")


@pytest.mark.row("AGT-8")
def test_the_page_names_the_agent_that_begins_to_speak(open_page: People, server: Harness, chat_id: str) -> None:
    page = open_page(f"/c/{chat_id}")
    server.command(chat_id, "set_params", patch={"mode": "desk"})
    server.message(chat_id, "hello")
    expect(page.get_by_text("Goodbye.", exact=True)).to_be_visible()
    shown = page.get_by_role("article", name="Desk").locator("p").all_inner_texts()
    assert shown[:6] == ["Welcome.", "Ada", "I help.", "Done.", "Desk", "Goodbye."]
