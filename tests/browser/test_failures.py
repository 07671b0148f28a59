"""Answers that fail: the cause is shown with the question permanently, in plain words, in one box with one Retry
button."""

import json
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.harness import LOOKS, Harness, People, answered, messages, say
from tests.integration.fake_openai import CUT, DONE, HANG, STOP, FakeOpenAI, Reply, failure, serve_fake_openai, text

KEY = "sk-planted-key-of-the-house-5f1c"

CONFIG = """
[models]
default = "fake/tiny"
demo = true

[models.providers.fake]
base_url = "{url}"
api_key = "{key}"
models = [{{ name = "tiny" }}, {{ name = "other" }}]
"""

FITS = "box => [box, ...box.querySelectorAll('p')].every((each) => each.scrollWidth <= each.clientWidth)"
"""Check that no text of the box is cut or overflows."""


@pytest.fixture(scope="module")
def model() -> Iterator[FakeOpenAI]:
    with serve_fake_openai() as fake:
        yield fake


@pytest.fixture(scope="module")
def server(new_harness: Callable[..., Harness], model: FakeOpenAI) -> Harness:
    return new_harness(CONFIG.format(url=model.base_url, key=KEY))


def refused(status: int, message: str, **more: str) -> Reply:
    """An error after which the SDK does not retry by itself."""
    return failure(status, {"message": message, **more}, x_should_retry="false")


def cause(page: Page) -> Locator:
    return page.get_by_label("What went wrong")


def retries(page: Page) -> Locator:
    """Return all visible buttons named Retry or Regenerate."""
    return (
        page.get_by_role("log")
        .get_by_role("button", name="Retry")
        .or_(page.get_by_role("log").get_by_role("button", name="Regenerate", exact=True))
    )


@pytest.mark.row("ERR-2", "ERR-4")
def test_a_refused_question_says_why_for_good_and_everywhere(
    open_page: People, server: Harness, model: FakeOpenAI, chat_id: str
) -> None:
    said = f"Incorrect API key provided: {KEY}. Ask the <b>house</b>."
    model.replies = [refused(401, said), Reply([text("Here I am."), STOP, DONE])]
    page = open_page(f"/c/{chat_id}")
    other = open_page(f"/c/{chat_id}", person="bob", **LOOKS["dark"])
    phone = open_page(f"/c/{chat_id}", person="eve", **LOOKS["phone"])
    say(page, "Why is the sea salty?")
    words = "The model's provider refused the server's credentials (401): "
    words += "Incorrect API key provided: ***. Ask the <b>house</b>."
    for name, tab in {"light": page, "dark": other, "phone": phone}.items():
        expect(cause(tab)).to_have_count(1)
        expect(cause(tab)).to_contain_text(words)
        expect(cause(tab)).to_contain_text("tell the operator of this server")
        expect(retries(tab)).to_have_count(1)
        assert cause(tab).evaluate(FITS)
        open_page.shoot(tab, f"failure-refused-{name}")
    assert KEY not in json.dumps(server.chat(chat_id))

    say(page, "And now?")
    expect(page.get_by_text("Here I am.", exact=True)).to_be_visible()
    for tab in (page, other):
        tab.reload()
        expect(tab.get_by_text("Here I am.", exact=True)).to_be_visible()
        expect(cause(tab)).to_contain_text(words)
    open_page.shoot_looks(page, "failure-after-the-next-message")

    lines = page.request.get(f"{server.url}/v1/chats/{chat_id}/export").text()
    assert page.request.delete(f"{server.url}/v1/chats/{chat_id}").ok
    server.import_chat(lines)
    later = open_page(f"/c/{chat_id}", person="dan")
    expect(cause(later)).to_contain_text(words)

    model.replies = [Reply([text("Rivers bring it."), STOP, DONE])]
    cause(later).get_by_role("button", name="Retry").click()
    expect(later.get_by_text("Rivers bring it.", exact=True)).to_be_visible()
    expect(cause(later)).to_have_count(0)
    expect(messages(later)).to_have_count(2)


def test_a_limit_says_when_it_ends_and_another_model_may_answer(
    open_page: People, server: Harness, model: FakeOpenAI, chat_id: str
) -> None:
    model.replies = [
        failure(429, {"message": "Slow down."}, retry_after="3000", x_should_retry="false"),
        Reply([text("Quicker."), STOP, DONE]),
    ]
    page = open_page(f"/c/{chat_id}")
    say(page, "Quick!")
    expect(cause(page)).to_contain_text("accepts no more requests for now (429): Slow down.")
    expect(cause(page)).to_contain_text("It can be asked again at ")
    open_page.shoot_looks(page, "failure-limit")
    cause(page).get_by_role("button", name="Another model…").click()
    page.get_by_role("dialog").get_by_role("button", name="fake/other").click()
    expect(page.get_by_text("Quicker.", exact=True)).to_be_visible()
    expect(cause(page)).to_have_count(0)


@pytest.mark.row("ERR-3")
def test_a_broken_answer_has_one_box_one_retry_and_goes_on(
    open_page: People, server: Harness, model: FakeOpenAI, chat_id: str
) -> None:
    model.replies = [Reply([text("The sea is salty because"), CUT]), Reply([text(" of rivers."), STOP, DONE])]
    page = open_page(f"/c/{chat_id}")
    say(page, "Why?")
    expect(cause(page)).to_contain_text("The model's answer broke off before it was finished.")
    expect(page.get_by_role("alert").filter(has_text="broke off")).to_have_count(1)
    expect(retries(page)).to_have_count(1)
    expect(messages(page).nth(1)).to_contain_text("The sea is salty because")
    open_page.shoot_looks(page, "failure-broken-off")
    page.reload()
    expect(cause(page)).to_have_count(1)
    cause(page).get_by_role("button", name="Continue").click()
    expect(messages(page).nth(1)).to_contain_text("The sea is salty because of rivers.")
    answered(page)
    expect(cause(page)).to_have_count(0)


def test_stop_before_the_first_word_leaves_a_line_with_retry(
    open_page: People, server: Harness, model: FakeOpenAI, chat_id: str
) -> None:
    model.replies = [Reply([HANG]), Reply([text("At last."), STOP, DONE])]
    page = open_page(f"/c/{chat_id}")
    other = open_page(f"/c/{chat_id}", person="eve", **LOOKS["phone"])
    say(page, "Are you there?")
    page.get_by_role("button", name="Stop", exact=True).click()
    for tab in (page, other):
        expect(tab.get_by_role("note", name="Stopped")).to_contain_text("Stopped before an answer.")
        expect(retries(tab)).to_have_count(1)
    open_page.shoot_looks(page, "stopped-before-a-word")
    other.reload()
    expect(other.get_by_text("Stopped before an answer.")).to_be_visible()
    retries(other).click()
    for tab in (page, other):
        expect(tab.get_by_text("At last.", exact=True)).to_be_visible()
        expect(tab.get_by_text("Stopped before an answer.")).to_have_count(0)


def test_time_travel_shows_the_failure_without_its_buttons(
    open_page: People, server: Harness, model: FakeOpenAI, chat_id: str
) -> None:
    model.replies = [refused(400, "Not like this."), Reply([text("Fine."), STOP, DONE])]
    page = open_page(f"/c/{chat_id}")
    say(page, "First")
    expect(cause(page)).to_contain_text("(400): Not like this.")
    say(page, "Second")
    expect(page.get_by_text("Fine.", exact=True)).to_be_visible()
    page.get_by_role("button", name="Time travel").click()
    slider = page.get_by_role("slider", name="Position")
    slider.focus()
    expect(page.get_by_text("Second")).to_be_visible()
    position = int(slider.input_value())
    while page.get_by_text("Fine.", exact=True).count():
        position -= 1
        page.keyboard.press("ArrowLeft")  # show the next failure only when the page shows this position
        expect(page.get_by_text(f"As it was at position {position} of")).to_be_visible()
    expect(page.get_by_text("Fine.", exact=True)).to_have_count(0)
    expect(cause(page)).to_contain_text("(400): Not like this.")
    expect(retries(page)).to_have_count(0)
    open_page.shoot_looks(page, "past-failure")


@pytest.mark.row("EVT-7")
def test_how_long_a_model_thought_is_the_same_after_a_reload_and_in_another_tab(
    open_page: People, server: Harness, chat_id: str
) -> None:
    page = open_page(f"/c/{chat_id}")
    server.message(chat_id, "Why?", params={"model": "demo/reasoning?words=6&rate=40"})
    answered(page)
    ms = server.chat(chat_id)["messages"][-1]["extra"]["reasoning_ms"]
    assert 100 < ms < 60_000
    summary = messages(page).nth(1).get_by_text("Thought for")
    told = f"Thought for {ms} ms" if ms < 1_000 else f"Thought for {ms / 1000:.1f}"
    expect(summary).to_contain_text(told)
    page.reload()
    expect(summary).to_contain_text(told)
    open_page.shoot_looks(page, "thought-after-a-reload")
    other = open_page(f"/c/{chat_id}", person="bob")
    expect(messages(other).nth(1)).to_contain_text(told)


def test_a_mode_that_this_server_does_not_have_is_told_where_it_is_asked(
    open_page: People, server: Harness, model: FakeOpenAI, chat_id: str
) -> None:
    header = {"type": "chat", "format": 1, "chat_id": chat_id, "leaf_id": "m1", "thread": {"mode": "gone"}}
    counts = {"message_count": 1, "payload_count": 0, "agent_count": 0}
    message = {"role": "user", "content": "From elsewhere", "message_id": "m1"}
    server.import_chat(
        "\n".join(json.dumps(each) for each in [header | counts, {"type": "message", "message": message}])
    )
    model.replies = [Reply([text("All the same."), STOP, DONE])]
    page = open_page(f"/c/{chat_id}")
    expect(page.get_by_text("From elsewhere")).to_be_visible()
    say(page, "Hello")
    expect(page.get_by_text("All the same.", exact=True)).to_be_visible()
    expect(page.get_by_role("alert").filter(has_text="The mode of this chat is not one of this server")).to_be_visible()
    open_page.shoot_looks(page, "mode-unknown")
