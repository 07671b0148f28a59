"""The browser, the server and the people of these tests; without a Chromium or a built page they are skipped.

A file has one server, configured by its `CONFIG` (toml) and `APP` (a Python file of tools) where it has them, so its
tests use chats of their own. The browser is the file's too, not the session's: playwright keeps an event loop in this
thread for as long as it lives, and other files of the same process run loops of their own.
"""

import re
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from server.api.page import STATIC
from tests.browser.chromium import launched_chromium
from tests.browser.house import House, People
from tests.integration.harness import ROOT

SOURCES = ("*.ts", "*.tsx", "*.css", "*.html")

FAILED = pytest.StashKey[bool]()


@pytest.fixture(scope="session")
def built_page() -> None:
    """The page as its sources say, not as they said before."""
    index = STATIC / "index.html"
    if not index.is_file():
        pytest.skip("the page is not built; `scripts/web build` builds it")
    sources = [path for room in ("app", "client/src") for kind in SOURCES for path in _sources(room, kind)]
    newest = max(sources, key=lambda path: path.stat().st_mtime)
    assert newest.stat().st_mtime <= index.stat().st_mtime, f"{newest} is newer than the page; run `scripts/web build`"


def _sources(room: str, kind: str) -> list[Path]:
    return [path for path in (ROOT / "web" / room).rglob(kind) if "node_modules" not in path.parts]


@pytest.fixture(scope="module")
def browser(request: pytest.FixtureRequest, built_page: None) -> Iterator[Browser]:
    """A real Chromium; it shows scroll bars in a file with `HAS_SCROLL_BARS = True`."""
    with ExitStack() as stack:
        try:
            yield stack.enter_context(launched_chromium(getattr(request.module, "HAS_SCROLL_BARS", False)))
        except LookupError as missing:
            pytest.skip(str(missing))


@pytest.fixture(scope="module")
def new_house(built_page: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., House]]:
    """`new_house(config="", app=None)`: a server that runs until the file's last test is over."""
    with ExitStack() as stack:

        def made(config: str = "", app: Path | None = None) -> House:
            house = stack.enter_context(closing(House(tmp_path_factory.mktemp("house"), config, app)))
            house.start()
            return house

        yield made


@pytest.fixture(scope="module")
def server(request: pytest.FixtureRequest, new_house: Callable[..., House]) -> House:
    """The file's own `threadcast serve`."""
    return new_house(getattr(request.module, "CONFIG", ""), getattr(request.module, "APP", None))


@pytest.fixture
def open_page(request: pytest.FixtureRequest, browser: Browser, server: House) -> Iterator[People]:
    """Opens tabs: `open_page("/c/hello")`. What they complain of fails the test."""
    name = re.sub(r"\W+", "-", request.node.name)[:80]
    with closing(People(browser, server.url, name)) as people:
        yield people
        if request.node.stash.get(FAILED, False):
            people.shoot_all()
        assert not people.complaints, "\n".join(people.complaints)


@pytest.fixture
def page(open_page: People) -> Page:
    """One tab, at a chat that nobody has begun."""
    return open_page("/")


@pytest.fixture
def chat_id() -> str:
    return f"chat-{uuid.uuid4().hex[:12]}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Remembers a failure until the fixtures are taken down, which then keep pictures of it."""
    report: pytest.TestReport = yield  # type: ignore[assignment] # a wrapper is sent the result
    item.stash[FAILED] = item.stash.get(FAILED, False) or report.failed
    return report  # type: ignore[return-value] # and gives it on
