"""The steps of a durable agent in the page: the state of each step, folded steps, and the announcements to screen
readers."""

import re
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.axe import violations
from tests.browser.harness import LOOKS, Harness, People

APP = Path(__file__).with_name("agents_of_test_agent_steps.py")

CONFIG = """
[models]
default = "demo/tools?rate=0"
"""


def begin(server: Harness, chat_id: str, agent: str, directory: Path) -> None:
    server.message(chat_id, str(directory), params={"mode": agent})


def timeline(page: Page) -> Locator:
    return page.get_by_role("region", name="Steps of the agent")


def line(page: Page, words: str) -> Locator:
    """Return the line of the only step with these words."""
    return timeline(page).get_by_role("listitem").filter(has_text=words)


def head(page: Page) -> Locator:
    return timeline(page).get_by_role("button").first


def announced(page: Page) -> Locator:
    return timeline(page).locator("[aria-live=polite]")


def test_each_step_says_what_it_does_and_the_list_folds_when_the_run_ends(
    open_page: People, server: Harness, chat_id: str, tmp_path: Path
) -> None:
    page = open_page(f"/c/{chat_id}", timezone_id="Europe/Vienna", locale="de-AT")
    begin(server, chat_id, "planner", tmp_path)
    expect(line(page, "make plan")).to_have_attribute("data-sign", "running")
    expect(head(page)).to_have_text("1 step")
    expect(head(page)).to_have_attribute("aria-expanded", "true")
    expect(announced(page)).to_have_text("make plan, running")
    (tmp_path / "plan").touch()
    expect(line(page, "make plan")).to_have_text(re.compile(r"make plan.*\d s|ms"))
    expect(line(page, "make plan")).to_have_attribute("data-sign", "done")
    expect(line(page, "fetch")).to_contain_text("ValueError")
    link = line(page, "the reader").get_by_role("link", name="the reader")
    expect(link).to_have_attribute("href", re.compile("/c/sub"))
    expect(line(page, "the reader")).to_contain_text("needs your decision")
    expect(line(page, "Which one?")).to_contain_text("waits for an answer")
    expect(line(page, "vote")).to_have_attribute("data-sign", "running")
    # The time is shown in the person's time zone and language.
    steps = {step["kind"]: step for step in server.chat(chat_id)["runtime"]["agent_steps"]}
    local = page.evaluate(
        """(ms) => new Date(ms).toLocaleString([],
        {day: 'numeric', month: 'short', year: 'numeric', hour: '2-digit', minute: '2-digit'})""",
        steps["sleep"]["until"],
    )
    expect(line(page, f"Sleeps until {local}")).to_have_count(1)
    inset = "(li) => li.firstElementChild.getBoundingClientRect().x"
    assert line(page, "Which one?").evaluate(inset) > line(page, "fetch").evaluate(inset)
    assert not violations(page)
    open_page.shoot_looks(page, "steps-of-an-agent", at=timeline(page))

    late = open_page(f"/c/{chat_id}", person="bob")
    expect(line(late, "fetch")).to_contain_text("ValueError")
    page.get_by_role("button", name="Stop", exact=True).click()
    for tab in (page, late):
        expect(head(tab)).to_have_attribute("aria-expanded", "false")
        expect(head(tab)).to_have_text(re.compile(r"^6 steps · 1 failed · \d"))
        expect(timeline(tab).get_by_role("listitem")).to_have_count(0)
    head(page).press("Enter")
    expect(head(page)).to_have_attribute("aria-expanded", "true")
    for words in ("the reader", "Which one?", "Sleep", "vote"):
        expect(line(page, words)).to_contain_text("cancelled")
    expect(announced(page)).to_have_text("")


def test_earlier_steps_fold_and_stay_where_they_were_when_another_run_follows(
    open_page: People, server: Harness, chat_id: str, tmp_path: Path
) -> None:
    page = open_page(f"/c/{chat_id}", **LOOKS["dark"])
    begin(server, chat_id, "counter", tmp_path)
    listed = timeline(page).get_by_role("list", name="Steps").get_by_role("listitem")
    expect(head(page)).to_have_text("20 steps")
    expect(listed).to_have_count(8)
    expect(listed.first).to_contain_text("step 12")
    fold = timeline(page).get_by_role("button", name="… 12 earlier steps")
    fold.press("Enter")
    expect(listed).to_have_count(20)
    hide = timeline(page).get_by_role("button", name="Hide 12 earlier steps")
    expect(hide).to_be_focused()
    hide.press("Enter")
    expect(listed).to_have_count(8)
    (tmp_path / "end").touch()
    server.at_rest(chat_id, 2)
    server.ask(chat_id, "And now something else", 4)
    for tab in (page, open_page(f"/c/{chat_id}", person="bob")):
        expect(tab.locator("article")).to_have_count(4)
        expect(head(tab)).to_have_text(re.compile("^20 steps · "))
        expect(timeline(tab)).to_have_count(1)
        question = tab.locator("article").nth(0)
        assert question.evaluate("(it) => it.nextElementSibling.getAttribute('aria-label')") == "Steps of the agent"


@pytest.mark.parametrize("motion", ["reduce", "no-preference"])
def test_a_long_name_fits_into_a_narrow_window_and_motion_may_be_switched_off(
    open_page: People, server: Harness, chat_id: str, tmp_path: Path, motion: str
) -> None:
    page = open_page(f"/c/{chat_id}", viewport={"width": 360, "height": 740}, reduced_motion=motion)
    begin(server, chat_id, "long_names", tmp_path)
    steps = timeline(page).get_by_role("listitem")
    expect(steps).to_have_count(4)
    expect(steps.filter(has_text="needs your decision")).to_have_count(1)
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    for step in steps.all():
        assert step.evaluate("(li) => li.scrollWidth - li.clientWidth") <= 0
    motions = steps.last.evaluate("(li) => li.getAnimations({subtree: true}).length")
    assert (motions > 0) == (motion == "no-preference")
    open_page.shoot(page, f"steps-narrow-{motion}")
    assert not violations(page)
    server.command(chat_id, "abort")


def test_a_plan_is_a_list_that_updates_and_the_change_of_a_file_is_shown_by_lines(
    open_page: People, server: Harness, chat_id: str, tmp_path: Path
) -> None:
    page = open_page(f"/c/{chat_id}")
    begin(server, chat_id, "coder", tmp_path)
    plan = page.get_by_role("list", name="Plan").get_by_role("listitem")
    expect(plan).to_have_text(
        ["Read the code, done important", "Change greet(), in progress important", re.compile("to do")]
    )
    change = page.get_by_role("region", name="diff")
    expect(change).to_contain_text("app.py")
    expect(change.locator("[data-kind=removed]").first).to_have_text("- def greet():")
    expect(change.locator("[data-kind=added]").first).to_have_text("+ def greet(name):")
    assert not violations(page)
    open_page.shoot_looks(page, "plan-and-diff", at=page.locator("article").last)
    (tmp_path / "go").touch()
    for tab in (page, open_page(f"/c/{chat_id}", person="bob")):
        entries = tab.get_by_role("list", name="Plan").get_by_role("listitem")
        expect(entries.nth(2)).to_have_text("Run the tests, in progress important")
        expect(entries).to_have_count(3)
