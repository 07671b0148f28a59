"""The worked examples in the page: each is started by the one command of its README, and walked through from its start
screen, by its starters, to the end. No model key, and no second terminal."""

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from playwright.sync_api import Browser, FrameLocator, Locator, Page, expect

from tests.browser.house import House, People, answered, messages
from tests.integration.harness import ROOT
from tests.ports import free_port

RUN = re.compile(r"^\$ \./scripts/run --config (examples/\S+/threadcast\.toml)$", re.MULTILINE)


class Example(House):
    """A copy of an example, started as its README says, on a port and with data of its own."""

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
    """The example that the test names by `@pytest.mark.parametrize("example", …, indirect=True)`."""
    with closing(Example(request.param, tmp_path)) as example:
        if request.param == "coding":
            monkeypatch.setenv("CODING_PROJECT", str(shutil.copytree(example.here / "project", tmp_path / "project")))
        if request.param == "help":  # 8001 may be taken
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
            people.expect_complaint("status of 401")  # before its link has signed anybody in
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
    """The answer of this number, once nothing runs any more."""
    expect(messages(page).nth(number)).to_be_visible()
    expect(page.get_by_role("button", name="Stop", exact=True)).to_have_count(0)
    return messages(page).nth(number)


def said(page: Page | FrameLocator, text: str) -> Locator:
    """The text in the conversation; a screen reader's line has it too."""
    return page.get_by_role("article").get_by_text(text)


@pytest.mark.parametrize("example", ["coding"], indirect=True)
def test_coding_works_from_its_start_screen(open_page: People, example: Example) -> None:
    project = Path(os.environ["CODING_PROJECT"])
    page = open_page("/")
    expect(page.get_by_role("heading", name="Coder")).to_be_visible()
    expect(page.get_by_text("A small project is open in the editor.")).to_be_visible()
    open_page.shoot(page, "p9-example-coding")

    begin(page, "Find a fault")  # the editor, which the server runs, opens a file
    expect(answer(page)).to_contain_text("prices.py takes the percentage itself off the price")
    expect(page.get_by_text("Demo answer: a script plays the model.")).to_be_visible()
    open_page.shoot(page, "p9-example-coding-editor")

    begin(page, "Run a command")  # a person is asked, and changes the command
    page.get_by_role("button", name="Allow", exact=True).click()
    expect(answer(page)).to_contain_text("It says: exit code 0")

    begin(page, "Mend it")  # the editor changes the file; the tests go on, and their end wakes the chat
    expect(said(page, "The tests have completed.")).to_be_visible()
    assert "cents * percent // 100" in (project / "prices.py").read_text("utf-8")

    begin(page, "Ask a reviewer")  # a chat below this one
    expect(answer(page)).to_contain_text("The reviewer says: prices.py:4: def with_discount")

    begin(page, "Have it reviewed meanwhile")
    expect(said(page, "The review of basket.py has completed")).to_be_visible()
    open_page.shoot(page, "p9-example-coding-end")
    panel = (project / "panel").read_text("utf-8")
    assert "open_file prices.py" in panel and "apply_edit prices.py" in panel


@pytest.mark.parametrize("example", ["workflow"], indirect=True)
def test_workflow_works_from_its_start_screen(open_page: People, example: Example) -> None:
    page = open_page("/")
    expect(page.get_by_role("heading", name="Workflow assistant")).to_be_visible()
    open_page.shoot(page, "p9-example-workflow")

    begin(page, "The open workflow")  # the id comes from the chat's context
    expect(answer(page)).to_contain_text("Monday mail begins with Every Monday and then does Tell Mara.")
    expect(page.get_by_role("list", name="Sent with your message")).to_contain_text("This chat is about: Monday mail")

    begin(page, "The reports")
    expect(answer(page)).to_contain_text("There are two: Weekly report, and Stock levels.")

    begin(page, "Propose a change")  # nothing is saved before a person has said yes
    expect(answer(page)).to_contain_text("Is this what you want?")
    open_page.shoot(page, "p9-example-workflow-proposal")
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
    page.get_by_role("button", name="New chat").click()
    page.get_by_role("combobox", name="Mode", exact=True).select_option("Workflow guide")
    expect(page.get_by_text("I explain workflows, and change nothing.")).to_be_visible()
    open_page.shoot(page, "p9-example-workflow-guide")


@pytest.mark.parametrize("example", ["help"], indirect=True)
def test_help_works_from_its_start_screen(open_page: People, example: Example) -> None:
    page = open_page("/#token=reader-token")
    expect(page.get_by_role("heading", name="Library help")).to_be_visible()
    open_page.shoot(page, "p9-example-help")

    begin(page, "About a report")
    expect(answer(page)).to_contain_text('It is "Sleep and memory" by A. Moreau, 2025.')
    page.get_by_role("group", name="Suggestions").get_by_role("button", name="Compare its articles").click()
    answered(page, 4)

    begin(page, "Compare its articles")
    expect(answer(page)).to_contain_text("a-2 had more people: 210 against 48.")
    expect(page.get_by_role("button", name="Open a-2")).to_be_visible()
    expect(page.get_by_role("button", name="Erase")).to_have_count(0)

    begin(page, "Search PubMed")
    expect(answer(page)).to_contain_text("2 found and shown.")

    begin(page, "My loans")  # the library's own API, which the server runs
    expect(answer(page)).to_contain_text('"The Sleeping Brain", until 2026-12-04.')


@pytest.mark.parametrize("example", ["help"], indirect=True)
@pytest.mark.parametrize("look", ["light", "dark", "phone"])
def test_help_knows_which_page_its_reader_looks_at(open_page: People, example: Example, look: str) -> None:
    more = {"viewport": {"width": 390, "height": 844}} if look == "phone" else {"color_scheme": look}
    page = open_page("/pages/", person=look, **more)
    chat = page.frame_locator("iframe")
    sent = chat.get_by_role("list", name="Sent with your message")
    expect(sent).to_have_text("Page: Sleep and memory", use_inner_text=True)
    expect(chat.get_by_role("button", name="About this report")).to_be_visible()
    open_page.shoot(page, f"p9-example-help-page-{look}")
    chat.get_by_role("button", name="About this report").click()
    expect(said(chat, 'It is "Sleep and memory" by A. Moreau, 2025.')).to_be_visible()
    page.get_by_role("button", name="Articles").click()
    expect(sent).to_have_text("Page: Articles of “Sleep and memory”", use_inner_text=True)
    chat.get_by_role("button", name="Compare its articles").click()
    expect(said(chat, "a-2 had more people: 210 against 48.")).to_be_visible()
    page.get_by_role("button", name="PubMed").click()
    box = chat.get_by_role("textbox", name="Message")
    box.fill("Search for everything")
    box.press("Enter")
    expect(said(chat, "I had to stop. So far: two articles about naps, one about light.")).to_be_visible()
    open_page.shoot(page, f"p9-example-help-searched-{look}")
    page.get_by_role("button", name="Start", exact=True).click()
    expect(sent).to_have_text("Place: reports", use_inner_text=True)


@pytest.mark.parametrize("example", ["coding"], indirect=True)
def test_coding_without_its_project_says_what_to_do(open_page: People, example: Example, tmp_path: Path) -> None:
    shutil.rmtree(tmp_path / "project")
    page = open_page("/")
    begin(page, "Run a command")
    page.get_by_role("button", name="Allow", exact=True).click()
    expect(answer(page)).to_contain_text(
        f"There is no project in {tmp_path / 'project'}. Put one there, such as: cp -R"
    )
