"""The start screen: the assistant, its starters, and the remembered choices with which the next chat begins."""

import re

import pytest
from playwright.sync_api import Locator, Page, Route, expect

from tests.browser.axe import violations
from tests.browser.harness import LOOKS, Harness, People, answered, ask, messages, shows, wait_until

CONFIG = """
[models]
default = "demo/echo?rate=0"

[models.providers.local]
base_url = "http://127.0.0.1:9/v1"
samplers = ["top_k", "min_p", "repetition_penalty", "seed", "stop"]
models = [{ name = "tiny" }]

[profiles.agent]

[profiles.desk]
title = "Front desk"
description = "Answers at the desk."
greeting = "What are you looking for?"
starters = [
  { title = "Opening hours", text = "When is the desk open?" },
  { title = "Another model", text = "Read this to me.", model = "demo/essay?words=5&rate=0" },
  { title = "About seven", text = "What is this?", context = { title = "Number seven", seven = 7 } },
]
"""


def starters(page: Page) -> Locator:
    return page.get_by_role("list", name="To begin with").get_by_role("button")


def choose(page: Page, *, mode: str = "", model: str = "") -> None:
    if mode:
        page.get_by_role("combobox", name="Mode", exact=True).select_option(mode)
    if model:
        page.get_by_role("combobox", name="Model", exact=True).select_option(model)


def settings(page: Page, tab: str = "Answers") -> Locator:
    page.get_by_role("button", name="Settings").click()
    dialog = page.get_by_role("dialog", name="Settings")
    dialog.get_by_role("tab", name=tab).click()
    return dialog


def chat_of(page: Page) -> str:
    page.wait_for_url("**/c/*")
    return page.url.rpartition("/c/")[2].partition("?")[0]


@pytest.mark.parametrize("look", LOOKS)
def test_an_assistant_says_its_name_its_greeting_and_what_to_begin_with(
    open_page: People, server: Harness, look: str
) -> None:
    page = open_page("/", person=look, **LOOKS[look])
    expect(page.get_by_role("heading", name="What shall we talk about?")).to_be_visible()
    expect(starters(page)).to_have_count(3)
    choose(page, mode="Front desk")
    expect(page.get_by_role("heading", name="Front desk")).to_be_visible()
    expect(page.get_by_text("What are you looking for?")).to_be_visible()
    assert [title.split("\n")[0] for title in starters(page).all_inner_texts()] == [
        "Opening hours",
        "Another model",
        "About seven",
    ]
    open_page.shoot(page, f"assistant-greets-{look}")
    assert not violations(page)
    starters(page).first.click()
    shows(page, ["When is the desk open?", "You said: When is the desk open?"])
    expect(page.get_by_role("article", name="Front desk")).to_have_count(1)
    expect(page.get_by_title("The assistant in this chat")).to_have_text("Front desk")
    assert server.chat(chat_of(page))["thread"]["mode"] == "desk"
    open_page.shoot(page, f"assistant-answers-{look}")


def test_until_the_server_has_said_who_greets_nothing_greets(open_page: People) -> None:
    page = open_page("/")
    choose(page, mode="Front desk")
    held: list[Route] = []
    page.route(re.compile("/v1/(caps|chat-modes)"), lambda route: held.append(route))
    page.add_init_script(
        """window.seen = new Set();
        new MutationObserver(() => {
            for (const each of document.querySelectorAll("main h2, main ul button")) window.seen.add(each.textContent);
        }).observe(document, {subtree: true, childList: true, characterData: true});"""
    )
    page.reload()
    expect(page.get_by_role("status").filter(has_text="live")).to_be_visible()
    expect(page.get_by_role("textbox", name="Message")).to_be_visible()
    assert page.evaluate("[...window.seen]") == []
    wait_until(lambda: len(held) == 2 or None, "both questions")
    for route in held:
        route.continue_()
    expect(page.get_by_role("heading", name="Front desk")).to_be_visible()
    seen = page.evaluate("[...window.seen]")
    assert seen[0] == "Front desk" and "What shall we talk about?" not in seen and len(seen) == 4


def test_a_chosen_demonstration_goes_on_in_its_chat(open_page: People, server: Harness) -> None:
    page = open_page("/")
    page.get_by_role("button", name="See a model think first").click()
    answered(page)
    expect(messages(page).nth(1)).to_contain_text("Thought")
    expect(page.get_by_role("combobox", name="Model", exact=True)).to_have_value("demo/reasoning")
    ask(page, "And then?", 4)
    expect(messages(page).nth(3)).to_contain_text("Thought")
    assert server.at_rest(chat_of(page), 4)["thread"]["model"] == "demo/reasoning"
    page.get_by_role("button", name="New chat").click()
    expect(page.get_by_role("combobox", name="Model", exact=True)).to_have_value("")  # the default


def test_a_starter_may_have_a_model_for_one_message_and_a_context_for_the_chat(
    open_page: People, server: Harness
) -> None:
    page = open_page("/")
    choose(page, mode="Front desk")
    page.get_by_role("button", name="Another model").click()
    answered(page)
    answer = server.at_rest(chat_of(page))
    assert (answer["messages"][-1]["model"], answer["thread"]["model"]) == ("demo/essay", "")
    page.get_by_role("button", name="New chat").click()
    page.get_by_role("button", name="About seven").click()
    answered(page)
    sent = page.get_by_role("list", name="Sent with your message")
    expect(sent).to_have_text("This chat is about: Number seven", use_inner_text=True)
    open_page.shoot_looks(page, "starter-with-a-context")
    about = server.at_rest(chat_of(page))
    assert about["thread"]["context"] == {"title": "Number seven", "seven": 7}
    page.get_by_role("button", name="Remove this from the chat").click()
    expect(sent).to_have_count(0)
    assert not server.chat(chat_of(page))["thread"].get("context")


def test_what_was_chosen_last_is_what_the_next_chat_has_in_every_tab_until_one_goes_back(
    open_page: People, server: Harness
) -> None:
    page, other = open_page("/"), open_page("/")
    choose(page, mode="Front desk", model="demo/reasoning")
    expect(page).to_have_url(re.compile(r"/$"))  # nothing has begun
    expect(other.get_by_role("heading", name="Front desk")).to_be_visible()
    box = settings(other).get_by_role("textbox", name="Instructions")
    box.fill("Answer briefly.")
    box.blur()
    other.keyboard.press("Escape")
    line = page.get_by_text(
        "As in your last chat: Front desk, the model demo/reasoning, your instructions “Answer brie"
    )
    expect(line).to_be_visible()
    open_page.shoot_looks(page, "choices-remembered")
    page.reload()
    expect(line).to_be_visible()
    ask(page, "Hello")
    begun = server.at_rest(chat_of(page))
    assert begun["messages"][-1]["model"] == "demo/reasoning"
    wanted = {"mode": "desk", "model": "demo/reasoning", "custom_instructions": "Answer briefly."}
    assert {key: begun["thread"][key] for key in wanted} == wanted
    page.get_by_role("button", name="New chat").click()
    page.get_by_role("button", name="Back to the defaults").click()
    expect(line).to_have_count(0)
    expect(other.get_by_role("heading", name="What shall we talk about?")).to_be_visible()
    ask(page, "Hello again")
    plain = server.at_rest(chat_of(page))["thread"]
    assert (plain["mode"], plain["model"], plain.get("custom_instructions")) == ("agent", "", None)


def test_a_choice_in_an_open_chat_is_remembered_and_the_settings_of_the_browser_show_it(
    open_page: People, server: Harness
) -> None:
    page = open_page("/")
    ask(page, "Hello")
    choose(page, model="demo/essay")
    dialog = settings(page, "This browser")
    expect(dialog.get_by_role("group", name="New chats")).to_contain_text("With the model demo/essay.")
    open_page.shoot_looks(page, "choices-in-settings")
    page.keyboard.press("Escape")
    page.get_by_role("button", name="New chat").click()
    expect(page.get_by_role("combobox", name="Model", exact=True)).to_have_value("demo/essay")
    settings(page, "This browser").get_by_role("button", name="Back to the defaults").click()
    page.keyboard.press("Escape")
    expect(page.get_by_role("combobox", name="Model", exact=True)).to_have_value("")


@pytest.mark.parametrize("path", ["/", "/c/not-begun-yet"])
def test_a_start_screen_that_is_higher_than_its_window_begins_with_its_heading(open_page: People, path: str) -> None:
    page = open_page(path, viewport={"width": 390, "height": 420})
    heading = page.get_by_role("heading", name="What shall we talk about?")
    expect(starters(page)).to_have_count(3)
    expect(heading).to_be_in_viewport(ratio=1)
    expect(page.get_by_role("button", name="How to configure one")).not_to_be_in_viewport()


def test_what_is_not_offered_any_more_is_dropped_with_a_word(open_page: People) -> None:
    kept = '{"model":"demo/parrot","mode":"pilot","custom_instructions":"Be brief."}'
    open_page.profile().add_init_script(
        f"if (origin !== 'null' && !localStorage.getItem('seen')) {{ localStorage.setItem('seen', '1'); "
        f"localStorage.setItem('threadcast.chosen', '{kept}'); }}"
    )
    page = open_page("/")
    expect(page.get_by_text("The model demo/parrot is no longer available.")).to_be_visible()
    expect(page.get_by_text("The assistant “pilot” is no longer available.")).to_be_visible()
    expect(page.get_by_text("As in your last chat: your instructions “Be brief.”")).to_be_visible()
    open_page.shoot_looks(page, "choices-dropped")
    page.reload()
    expect(page.get_by_text("As in your last chat")).to_be_visible()
    expect(page.get_by_text("no longer available")).to_have_count(0)


@pytest.mark.parametrize("kept", ["nonsense", "[]", "7", '{"model": 7}', "null"])
def test_what_is_kept_and_cannot_be_read_is_no_choice(open_page: People, kept: str) -> None:
    open_page.profile().add_init_script(f"if (origin !== 'null') localStorage.setItem('threadcast.chosen', {kept!r})")
    page = open_page("/")
    expect(page.get_by_role("heading", name="What shall we talk about?")).to_be_visible()
    expect(page.get_by_text("As in your last chat")).to_have_count(0)


def test_a_browser_that_keeps_nothing_remembers_as_long_as_the_page_stands(open_page: People, server: Harness) -> None:
    open_page.profile().add_init_script(
        "const no = () => { throw new DOMException('blocked', 'QuotaExceededError'); };Storage.prototype.setItem = no;"
    )
    page = open_page("/")
    choose(page, model="demo/reasoning")
    ask(page, "Hello")
    assert server.at_rest(chat_of(page))["thread"]["model"] == "demo/reasoning"
    page.get_by_role("button", name="New chat").click()
    expect(page.get_by_text("As in your last chat: the model demo/reasoning")).to_be_visible()


@pytest.mark.parametrize("look", LOOKS)
def test_demonstrations_say_that_they_are_and_how_to_get_a_model(open_page: People, look: str) -> None:
    page = open_page("/", person=look, **LOOKS[look])
    expect(page.get_by_text("No model is configured, so answers are demonstrations.")).to_be_visible()
    open_page.shoot(page, f"demo-start-{look}")
    ask(page, "Hello")
    note = messages(page).nth(1).get_by_text("Demo answer: no model is configured.")
    expect(note).to_be_visible()
    open_page.shoot(page, f"demo-answer-{look}")
    page.get_by_role("button", name="How to configure one").click()
    dialog = page.get_by_role("dialog", name="Configure a model")
    expect(dialog).to_contain_text("OPENAI_BASE_URL=")
    open_page.shoot(page, f"demo-how-to-{look}")
    assert not violations(page)
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)


@pytest.mark.row("OLD-9")
def test_samplers_are_set_within_their_bounds_and_say_which_model_takes_them(
    open_page: People, server: Harness, chat_id: str
) -> None:
    server.ask(chat_id, "Hello")
    page = open_page(f"/c/{chat_id}")
    answered(page)
    dialog = settings(page)
    dialog.get_by_text("More", exact=True).click()
    seed = dialog.get_by_label("Seed", exact=True)
    expect(seed).to_have_accessible_description(re.compile(r"The model demo/echo does not support this\.$"))
    dialog.get_by_role("combobox", name="Model").select_option("local/tiny")
    expect(seed).not_to_have_accessible_description(re.compile("does not support this"))
    values = {"Top k": "40", "Min p": "0,05", "Repetition penalty": "1.1", "Seed": "7", "Stop at": "END\n\\n\\n"}
    for label, typed in values.items():
        field = dialog.get_by_label(label, exact=True)
        field.fill(typed)
        field.blur()
        expect(dialog.get_by_role("button", name=f"Reset {label}")).to_be_visible()
    wanted = {"top_k": 40, "min_p": 0.05, "repetition_penalty": 1.1, "seed": 7, "stop": ["END", "\n\n"]}
    assert {key: server.chat(chat_id)["thread"][key] for key in wanted} == wanted
    open_page.shoot_looks(page, "samplers")
    dialog.get_by_label("Top k", exact=True).fill("-1")
    dialog.get_by_label("Top k", exact=True).blur()
    expect(dialog.get_by_text("A whole number from 0 to 100,000.")).to_be_visible()
    stop = dialog.get_by_label("Stop at", exact=True)
    expect(stop).to_have_value("END\n\\n\\n")
    stop.fill("a\nb\nc\nd\ne")
    stop.blur()
    expect(dialog.get_by_text("Write at most 4 lines.")).to_be_visible()
    dialog.get_by_role("button", name="Reset Seed").click()
    expect(dialog.get_by_role("button", name="Reset Seed")).to_have_count(0)
    thread = server.chat(chat_id)["thread"]
    assert (thread["top_k"], thread["stop"], "seed" in thread) == (40, ["END", "\n\n"], False)
