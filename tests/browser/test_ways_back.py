"""After an attempt that failed before its first word, a link leads to the later messages of the tree."""

import re
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Locator, Page, Route, expect

from tests.browser.harness import LOOKS, Harness, People, answered, ask, say, shows
from tests.integration.fake_openai import DONE, HANG, STOP, FakeOpenAI, Reply, failure, serve_fake_openai, text

CONFIG = """
[models]
default = "fake/tiny"

[models.providers.fake]
base_url = "{url}"
models = [{{ name = "tiny" }}]
"""


@pytest.fixture(scope="module")
def model() -> Iterator[FakeOpenAI]:
    with serve_fake_openai() as fake:
        yield fake


@pytest.fixture(scope="module")
def server(new_harness: Callable[..., Harness], model: FakeOpenAI) -> Harness:
    return new_harness(CONFIG.format(url=model.base_url))


def refused() -> Reply:
    return failure(401, {"message": "Not with this key."}, x_should_retry="false")


def saying(words: str) -> Reply:
    return Reply([text(words), STOP, DONE])


def cause(page: Page) -> Locator:
    return page.get_by_label("What went wrong")


def way(page: Page | Locator, name: str) -> Locator:
    return page.get_by_role("button", name=name, exact=True)


def test_a_retry_of_an_older_failure_that_fails_leads_back_to_what_followed(
    open_page: People, server: Harness, model: FakeOpenAI, chat_id: str
) -> None:
    model.replies = [refused(), saying("The key is new."), refused()]
    page = open_page(f"/c/{chat_id}")
    other = open_page(f"/c/{chat_id}", person="eve", **LOOKS["phone"])
    say(page, "Why is the sea salty?")
    expect(cause(page)).to_contain_text("Not with this key.")
    say(page, "And now?")
    shows(page, ["Why is the sea salty?", "And now?", "The key is new."])
    expect(page.get_by_role("button", name="Show the ")).to_have_count(0)

    cause(page).get_by_role("button", name="Retry").click()
    for tab in (page, other):
        shows(tab, ["Why is the sea salty?"])
        expect(way(cause(tab), "Show the messages that followed")).to_be_visible()
        tab.reload()
        expect(way(cause(tab), "Show the messages that followed")).to_be_visible()

    open_page.shoot_looks(page, "way-back-to-what-followed")
    way(cause(other), "Show the messages that followed").click()
    for tab in (page, other):
        shows(tab, ["Why is the sea salty?", "And now?", "The key is new."])
        expect(cause(tab)).to_have_count(1)  # the first question failed and has no answer
        expect(tab.get_by_role("button", name="Show the ")).to_have_count(0)


@pytest.mark.parametrize("is_stopped", [False, True], ids=["fails", "is stopped"])
def test_an_answer_whose_regeneration_comes_to_nothing_is_one_press_away(
    open_page: People, server: Harness, model: FakeOpenAI, chat_id: str, is_stopped: bool
) -> None:
    model.replies = [saying("Rivers bring it."), Reply([HANG]) if is_stopped else refused()]
    page = open_page(f"/c/{chat_id}")
    ask(page, "Why is the sea salty?")
    page.get_by_role("button", name="Regenerate", exact=True).click()
    if is_stopped:
        page.get_by_role("button", name="Stop", exact=True).click()
    box = page.get_by_role("note", name="Stopped") if is_stopped else cause(page)
    expect(way(box, "Show the earlier answer")).to_be_visible()
    open_page.shoot_looks(page, f"way-back-to-an-answer-{'stopped' if is_stopped else 'failed'}")

    page.get_by_role("button", name="Time travel").click()
    expect(page.get_by_role("slider")).to_be_visible()
    expect(box).to_be_visible()
    expect(way(page, "Show the earlier answer")).to_have_count(0)
    page.reload()
    way(box, "Show the earlier answer").click()
    for _ in ("now", "after a reload"):
        shows(page, ["Why is the sea salty?", "Rivers bring it."])
        expect(box).to_have_count(0)
        page.reload()


def test_the_newest_of_several_answers_leads_to_the_others_also_after_a_line_that_was_down(
    open_page: People, server: Harness, model: FakeOpenAI, chat_id: str
) -> None:
    model.replies = [saying("Rivers bring it."), saying("Rain brings it."), refused()]
    page = open_page(f"/c/{chat_id}")
    ask(page, "Why is the sea salty?")
    page.get_by_role("button", name="Regenerate", exact=True).click()
    shows(page, ["Why is the sea salty?", "Rain brings it."])
    answered(page)
    tree = re.compile("view=tree")
    page.context.route(tree, lambda route: route.abort())
    open_page.expect_complaint("net::ERR_FAILED")
    with page.expect_event("requestfailed", lambda request: "view=tree" in request.url):
        page.get_by_role("button", name="Regenerate", exact=True).click()
    expect(way(cause(page), "Retry")).to_be_visible()
    expect(page.get_by_role("button", name="Show the ")).to_have_count(0)
    expect(page.get_by_text("could not be reached")).to_have_count(0)
    page.context.unroute(tree)
    page.reload()
    way(cause(page), "Show the earlier answer (newest of 2)").click()
    shows(page, ["Why is the sea salty?", "Rain brings it."])
    page.get_by_role("button", name="Previous version").click()
    shows(page, ["Why is the sea salty?", "Rivers bring it."])


def test_the_tree_is_asked_for_once(open_page: People, server: Harness, model: FakeOpenAI, chat_id: str) -> None:
    model.replies = [refused()]
    page = open_page(f"/c/{chat_id}")
    asked: list[str] = []

    def watch(route: Route) -> None:
        asked.append(route.request.url)
        route.continue_()

    page.context.route(re.compile("view=tree"), watch)
    with page.expect_response(re.compile("view=tree")):
        say(page, "Why is the sea salty?")
    expect(cause(page)).to_be_visible()
    page.get_by_role("textbox", name="Message").fill("Typed")
    page.get_by_role("button", name="Settings").click()
    expect(page.get_by_role("dialog")).to_be_visible()
    assert len(asked) == 1, asked
