"""Plays the worked examples in the page: each is started by the command in its README, without a model key or a second
terminal, and followed from its start screen to the end."""

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from playwright.sync_api import Browser, FrameLocator, Locator, Page, expect

from tests.browser.harness import LOOKS, Harness, People, messages
from tests.ports import free_port
from tests.support.server import ROOT

RUN = re.compile(r"^\$ \./scripts/run --config (examples/\S+/threadcast\.toml)$", re.MULTILINE)


class Example(Harness):
    """A copy of an example, started as its README says, on its own port and with its own data."""

    def __init__(self, name: str, directory: Path) -> None:
        said = RUN.findall((ROOT / "examples" / name / "README.md").read_text("utf-8"))
        assert said == [f"examples/{name}/threadcast.toml"], "the README starts the example by one command"
        super().__init__(directory)
        self.name = name
        self.here = Path(shutil.copytree(ROOT / "examples" / name, directory / "example"))
        self._arguments[self._arguments.index("--config") + 1] = str(self.here / "threadcast.toml")


@pytest.fixture
def example(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, built_page: None
) -> Iterator[Example]:
    """The example that the test names with `@pytest.mark.parametrize("example", …, indirect=True)`."""
    with closing(Example(request.param, tmp_path)) as example:
        if request.param == "coding":
            monkeypatch.setenv("CODING_PROJECT", str(shutil.copytree(example.here / "project", tmp_path / "project")))
        if request.param == "help":  # port 8001 may be in use
            port = free_port()
            for file, line in (("library.py", "PORT = {}"), ("threadcast.toml", 'url = "http://127.0.0.1:{}/loans"')):
                path = example.here / file
                assert line.format(8001) in path.read_text("utf-8")
                path.write_text(path.read_text("utf-8").replace(line.format(8001), line.format(port)), "utf-8")
        example.start()
        yield example


@pytest.fixture
def open_page(request: pytest.FixtureRequest, browser: Browser, example: Example) -> Iterator[People]:
    with closing(People(browser, example.url, re.sub(r"\W+", "-", request.node.name)[:80])) as people:
        if example.name == "help":
            people.expect_complaint("status of 401")  # requests fail until the link has signed a person in
        yield people
        assert not people.complaints, "\n".join(people.complaints)


def begin(page: Page, starter: str) -> None:
    """Begin a chat with a starter of the start screen."""
    button = page.get_by_role("button", name="New chat")
    if button.is_visible():
        button.click()
    page.get_by_role("list", name="To begin with").get_by_role("button").filter(
        has=page.get_by_text(starter, exact=True)
    ).first.click()


def answer(page: Page, number: int = 1) -> Locator:
    """Return the answer with this number, once the run has ended."""
    expect(messages(page).nth(number)).to_be_visible()
    expect(page.get_by_role("button", name="Stop", exact=True)).to_have_count(0)
    return messages(page).nth(number)


def said(page: Page | FrameLocator, text: str) -> Locator:
    """Return the text in the conversation, and not its copy in the line for screen readers."""
    return page.get_by_role("article").get_by_text(text)


@pytest.mark.parametrize("example", ["coding"], indirect=True)
def test_coding_works_from_its_start_screen(open_page: People, example: Example) -> None:
    project = Path(os.environ["CODING_PROJECT"])
    page = open_page("/")
    expect(page.get_by_role("heading", name="Coder")).to_be_visible()
    expect(page.get_by_text("A small project is open in the editor.")).to_be_visible()
    open_page.shoot_looks(page, "example-coding")

    begin(page, "Find a fault")  # the editor, which the server runs, opens a file
    expect(answer(page)).to_contain_text("prices.py takes the percentage itself off the price")
    expect(page.get_by_text("Demo answer: a script plays the model.")).to_be_visible()
    open_page.shoot_looks(page, "example-coding-editor")

    begin(page, "Run a command")  # a person is asked, and changes the command
    page.get_by_role("button", name="Allow", exact=True).click()
    expect(answer(page).locator("pre")).to_contain_text("exit code 0")  # shown as code, not as prose

    begin(page, "Mend it")  # the editor changes the file; the tests continue, and their end wakes the chat
    expect(said(page, "The tests have completed.")).to_be_visible()
    assert "cents * percent // 100" in (project / "prices.py").read_text("utf-8")
    begin(page, "Mend it")  # there is nothing to change, and the page reports no change
    expect(answer(page)).to_contain_text("occurs 0 times in prices.py")

    begin(page, "Ask a reviewer")  # the reviewer works in a sub-chat
    expect(answer(page)).to_contain_text("The reviewer says: prices.py:4: def with_discount")

    begin(page, "Have it reviewed meanwhile")
    expect(said(page, "The review of basket.py has completed")).to_be_visible()
    open_page.shoot_looks(page, "example-coding-end")
    panel = (project / "panel").read_text("utf-8")
    assert "open_file prices.py" in panel and "apply_edit prices.py" in panel


@pytest.mark.parametrize("example", ["workflow"], indirect=True)
def test_workflow_works_from_its_start_screen(open_page: People, example: Example) -> None:
    page = open_page("/")
    expect(page.get_by_role("heading", name="Workflow assistant")).to_be_visible()
    open_page.shoot_looks(page, "example-workflow")

    begin(page, "The open workflow")  # the id comes from the chat's context
    expect(answer(page)).to_contain_text("Monday mail begins with Every Monday and then does Tell Mara.")
    expect(page.get_by_role("list", name="Sent with your message")).to_contain_text("This chat is about: Monday mail")

    begin(page, "The reports")
    expect(answer(page)).to_contain_text("There are two: Weekly report, and Stock levels.")

    begin(page, "Propose a change")  # nothing is saved before a person has accepted
    expect(answer(page)).to_contain_text("Is this what you want?")
    proposal = page.get_by_role("region", name="Change 'Monday mail': 4 actions")
    expect(proposal).to_contain_text("Compared with the present data")
    expect(proposal).to_contain_text('+ Tell Mara (send_mail) after Any orders? → yes {"to":"mara@example.com"}')
    expect(proposal.locator("[data-kind=removed]")).to_have_count(1)  # the chosen settings stay
    open_page.shoot_looks(page, "example-workflow-proposal")
    page.get_by_role("region", name="Waiting for you").get_by_role("button", name="Apply", exact=True).click()
    expect(page.get_by_role("region", name="Waiting for you")).to_have_count(0)
    box = page.get_by_role("textbox", name="Message")
    box.fill("What does this workflow do now?")
    box.press("Enter")
    expect(messages(page).nth(3)).to_contain_text("Monday mail begins with Every Monday and then does Numbers.")

    begin(page, "Build a draft")
    expect(answer(page)).to_contain_text("The draft has 3 actions.")
    box.fill("Show me the draft")
    box.press("Enter")
    expect(said(page, "Shall I save it?")).to_be_visible()

    begin(page, "Ask in English")
    expect(said(page, "A trigger is what a workflow begins with.")).to_be_visible()
    expect(said(page, "触发器是工作流程的开始。")).to_be_hidden()  # refused, and folded
    open_page.shoot_looks(page, "example-workflow-refused")
    said(page, "An answer in the wrong language was refused, and the model was asked again").click()
    expect(said(page, "触发器是工作流程的开始。")).to_be_visible()
    page.get_by_role("button", name="New chat").click()
    page.get_by_role("combobox", name="Mode", exact=True).select_option("Workflow guide")
    expect(page.get_by_text("I explain workflows, and change nothing.")).to_be_visible()
    open_page.shoot_looks(page, "example-workflow-guide")


@pytest.mark.parametrize("example", ["help"], indirect=True)
def test_help_works_from_its_start_screen(open_page: People, example: Example) -> None:
    page = open_page("/#token=reader-token")
    expect(page.get_by_role("heading", name="Library help")).to_be_visible()
    open_page.shoot_looks(page, "example-help")

    begin(page, "About a report")
    expect(answer(page)).to_contain_text('It is "Sleep and memory" by A. Moreau, 2025.')

    begin(page, "Compare its articles")
    expect(answer(page)).to_contain_text("a-2 had more people: 210 against 48.")
    expect(page.get_by_role("button", name="Open a-2")).to_be_visible()
    expect(page.get_by_role("button", name="Erase")).to_have_count(0)

    begin(page, "Search PubMed")
    expect(answer(page)).to_contain_text("2 found and shown.")


@pytest.mark.parametrize("example", ["help"], indirect=True)
@pytest.mark.parametrize("look", LOOKS)
def test_help_knows_which_page_its_reader_looks_at(open_page: People, example: Example, look: str) -> None:
    page = open_page("/pages/", person=look, **LOOKS[look])
    chat = page.frame_locator("iframe")
    sent = chat.get_by_role("list", name="Sent with your message")
    expect(sent).to_have_text("Page: Sleep and memory", use_inner_text=True)
    expect(chat.get_by_role("button", name="About this report")).to_be_visible()
    open_page.shoot(page, f"example-help-page-{look}")
    chat.get_by_role("button", name="About this report").click()
    expect(said(chat, 'It is "Sleep and memory" by A. Moreau, 2025.')).to_be_visible()
    chat.get_by_role("group", name="Suggestions").get_by_role("button", name="What have I borrowed?").click()
    # the library's page provides the card
    expect(said(chat, '"The Sleeping Brain", until 2026-12-04.')).to_be_visible()
    page.get_by_role("button", name="Articles").click()
    expect(sent).to_have_text("Page: Articles of “Sleep and memory”", use_inner_text=True)
    box = chat.get_by_role("textbox", name="Message")
    box.fill("Compare its articles")
    chat.get_by_role("button", name="Send", exact=True).click()
    expect(said(chat, "a-2 had more people: 210 against 48.")).to_be_visible()
    page.get_by_role("button", name="Start", exact=True).click()
    chat.get_by_role("button", name="Open a-2").click()  # the library's page carries out the call
    expect(page.get_by_role("heading", name="Article a-2")).to_be_visible()
    expect(sent).to_have_text("Page: Articles of “Sleep and memory”", use_inner_text=True)
    page.get_by_role("button", name="PubMed").click()
    page.reload()
    expect(page.get_by_role("heading", name="PubMed")).to_be_visible()
    expect(said(chat, "a-2 had more people: 210 against 48.")).to_be_visible()
    box.fill("Search for everything")
    chat.get_by_role("button", name="Send", exact=True).click()
    expect(said(chat, "I had to stop. So far: two articles about naps, one about light.")).to_be_visible()
    open_page.shoot(page, f"example-help-searched-{look}")
    page.get_by_role("button", name="Start", exact=True).click()
    expect(sent).to_have_text("Section: reports", use_inner_text=True)


@pytest.mark.parametrize("example", ["coding"], indirect=True)
def test_coding_without_its_project_says_what_to_do(open_page: People, example: Example, tmp_path: Path) -> None:
    shutil.rmtree(tmp_path / "project")
    page = open_page("/")
    begin(page, "Run a command")
    page.get_by_role("button", name="Allow", exact=True).click()
    expect(answer(page)).to_contain_text(
        f"There is no project in {tmp_path / 'project'}. Put one there, such as: cp -R"
    )


@pytest.mark.parametrize("example", ["agents"], indirect=True)
def test_an_agent_without_a_model_works_from_its_start_screen(open_page: People, example: Example) -> None:
    page = open_page("/")
    page.get_by_role("combobox", name="Mode", exact=True).select_option("waiter")
    expect(page.get_by_role("heading", name="Waiter")).to_be_visible()
    expect(page.get_by_text("Good evening. Tea or cake?")).to_be_visible()
    expect(page.get_by_role("combobox", name="Model", exact=True)).to_have_count(0)

    begin(page, "The menu")
    expect(answer(page)).to_contain_text("We have tea for 3 dollars and cake for 4.")

    page.get_by_role("button", name="New chat").click()
    page.get_by_role("combobox", name="Mode", exact=True).select_option("waiter")
    page.get_by_role("list", name="To begin with").get_by_role("button").filter(has_text="An order").click()
    page.get_by_role("button", name="Allow", exact=True).click()
    expect(said(page, "Charged 7 dollars. Enjoy it!")).to_be_visible()
    open_page.shoot_looks(page, "example-agents")
