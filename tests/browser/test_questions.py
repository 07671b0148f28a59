"""Questions of tools in the page: options, a text, a form and JSON, by keyboard and on a narrow screen."""

import json
import re
import sys
from pathlib import Path

from playwright.sync_api import Locator, Page, expect

from tests.browser.axe import violations
from tests.browser.harness import SCREEN_MS, Harness, People, say
from tests.support.server import ROOT
from threadcast_protocol.wire.messages import JsonObject

APP = Path(__file__).parents[1] / "integration" / "asking_tools.py"
CONFIG = f"""
[models]
default = "demo/tools?rate=0"

[mcp.desk]
command = "{sys.executable}"
args = ["{ROOT}/tests/integration/asking_mcp.py", "stdio"]
env = {{ PYTHONPATH = "{ROOT}" }}
policy = "auto"
"""


def call(name: str, **arguments: object) -> str:
    return f"call {name} {json.dumps(arguments)}"


def question(page: Page, tool: str = "ask") -> Locator:
    return page.get_by_role("group", name=f"{tool} asks you")


def result_of(chat: JsonObject) -> str:
    found: str = [message for message in chat["messages"] if message["role"] == "tool"][-1]["content"]
    return found


def test_an_option_chosen_in_one_tab_ends_the_question_in_every_tab(
    open_page: People, server: Harness, chat_id: str
) -> None:
    ann, bob = open_page(f"/c/{chat_id}"), open_page(f"/c/{chat_id}", person="bob")
    say(ann, call("ask", text="Which **one**?", options=["short", "long"]))
    for tab in (ann, bob):
        expect(question(tab)).to_be_visible(timeout=SCREEN_MS)
        expect(question(tab).get_by_text("Which **one**?")).to_be_visible()  # the words of a tool, unchanged
        expect(tab.get_by_role("status").filter(has_text="1 question waiting for your decision")).to_have_count(1)
    open_page.shoot(ann, "question-options")
    question(bob).get_by_role("button", name="long").click()
    for tab in (ann, bob):
        expect(question(tab)).to_have_count(0, timeout=SCREEN_MS)
    assert result_of(server.at_rest(chat_id, 4)) == "the answer is long"


def test_a_text_is_typed_with_the_keyboard_alone(open_page: People, server: Harness, chat_id: str) -> None:
    page = open_page(f"/c/{chat_id}")
    say(page, call("ask", text="Why?"))
    field = question(page).get_by_role("textbox")
    expect(field).to_be_visible(timeout=SCREEN_MS)
    expect(question(page).get_by_role("button", name="Answer")).to_be_disabled()
    field.focus()
    page.keyboard.type("first line")
    page.keyboard.press("Shift+Enter")
    page.keyboard.type("second line")
    page.keyboard.press("Enter")
    expect(question(page)).to_have_count(0, timeout=SCREEN_MS)
    assert result_of(server.at_rest(chat_id, 4)) == "the answer is first line\nsecond line"


def test_a_question_is_rejected(open_page: People, server: Harness, chat_id: str) -> None:
    page = open_page(f"/c/{chat_id}")
    say(page, call("ask", text="Why?"))
    question(page).get_by_role("button", name="Reject").click()
    expect(question(page)).to_have_count(0, timeout=SCREEN_MS)
    assert result_of(server.at_rest(chat_id, 4)) == "no answer: rejected"


def test_a_form_is_filled_in_on_a_narrow_screen(open_page: People, server: Harness, chat_id: str) -> None:
    page = open_page(f"/c/{chat_id}", viewport={"width": 360, "height": 740})
    say(page, call("ask_form"))
    asked = question(page, "ask_form")
    expect(asked).to_be_visible(timeout=SCREEN_MS)
    asked.get_by_label("Your name").fill("ann")
    asked.get_by_label("Age").fill("7")
    asked.get_by_role("button", name="Answer").click()
    # the page does not send the form
    assert asked.get_by_label("Size").evaluate("field => field.validity.valueMissing")
    expect(asked.get_by_text("Sent…")).to_have_count(0)
    asked.get_by_label("Size").select_option("large")
    asked.get_by_label("News").check()
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    assert violations(page) == []
    open_page.shoot(page, "question-form-phone")
    asked.get_by_role("button", name="Answer").click()
    expect(asked).to_have_count(0, timeout=SCREEN_MS)
    told = result_of(server.at_rest(chat_id, 4))
    assert told == str({"name": "ann", "age": 7, "size": "large", "news": True})


def test_json_is_typed_and_a_refusal_is_shown(open_page: People, server: Harness, chat_id: str) -> None:
    page = open_page(f"/c/{chat_id}")
    say(page, call("ask_list"))
    asked = question(page, "ask_list")
    field = asked.get_by_role("textbox")
    expect(field).to_be_visible(timeout=SCREEN_MS)
    field.fill("[1, ")
    expect(asked.get_by_text("This is not JSON.")).to_be_visible()
    field.fill('[1, "two"]')
    field.press("Enter")
    expect(asked.get_by_role("alert").filter(has_text=re.compile("That was refused: 'two'"))).to_be_visible(
        timeout=SCREEN_MS
    )
    field.fill("[1, 2]")
    field.press("Enter")
    expect(asked).to_have_count(0, timeout=SCREEN_MS)
    assert result_of(server.at_rest(chat_id, 4)) == "[1, 2]"


def test_the_page_names_the_server_that_asks(open_page: People, server: Harness, chat_id: str) -> None:
    page = open_page(f"/c/{chat_id}")
    words = "I am **the assistant**. [Sign in](https://example.org) <b>now</b>"
    say(page, call("mcp__desk__greet", text=words))
    asked = page.get_by_role("group", name="The server desk asks you")
    expect(asked.get_by_text(words)).to_be_visible(timeout=SCREEN_MS)
    expect(asked.get_by_role("link")).to_have_count(0)
    expect(asked.get_by_text("Your answer goes to this server. Give it no passwords or keys.")).to_be_visible()
    open_page.shoot(page, "question-mcp")
    asked.get_by_label("Name").fill("mara")
    asked.get_by_label("Name").press("Enter")
    expect(asked).to_have_count(0, timeout=SCREEN_MS)
    assert result_of(server.at_rest(chat_id, 4)) == "hello mara"


def test_an_agents_question_is_shown_with_its_marks(open_page: People, server: Harness, chat_id: str) -> None:
    page = open_page(f"/c/{chat_id}")
    server.message(chat_id, "go", params={"mode": "asker"})
    asked = page.get_by_role("group", name="A question for you")
    expect(asked.locator("strong", has_text="one")).to_be_visible(timeout=SCREEN_MS)
    asked.get_by_role("button", name="short").click()
    expect(asked).to_have_count(0, timeout=SCREEN_MS)
    assert server.at_rest(chat_id)["messages"][-1]["content"] == "the answer is short"


def test_a_question_of_a_sub_chat_is_named_in_its_parent_and_answered_in_it(
    open_page: People, server: Harness, chat_id: str
) -> None:
    page = open_page(f"/c/{chat_id}")
    say(page, call("delegate", task=call("ask", text="Down here?")))
    below = page.locator("[data-subchat]").filter(has_text="needs your decision")
    expect(below).to_be_visible(timeout=SCREEN_MS)
    below.get_by_role("link").click()
    asked = question(page)
    expect(asked.get_by_text("Down here?")).to_be_visible(timeout=SCREEN_MS)
    asked.get_by_role("textbox").fill("yes")
    asked.get_by_role("textbox").press("Enter")
    expect(asked).to_have_count(0, timeout=SCREEN_MS)
    assert "the answer is yes" in result_of(server.at_rest(chat_id, 4))
