"""The browser, the server and the people of these tests; without a Chromium or a built page the tests are skipped.

Each test file has one server, configured by its `CONFIG` (TOML) and `APP` (a Python file of tools), so its tests use
separate chats. Each file also has its own browser, because playwright keeps an event loop in this thread while it runs,
and other files in the same process run their own loops.
"""

import re
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from tests.browser.chromium import launched_chromium
from tests.browser.harness import Harness, People
from tests.support.server import ROOT
from threadcast.api.page import STATIC

SOURCES = ("*.ts", "*.tsx", "*.css", "*.html")

FAILED = pytest.StashKey[bool]()


@pytest.fixture(scope="session")
def built_page() -> None:
    """Check that the page is built from the present sources."""
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
    """Start a real Chromium, with visible scroll bars in a file with `HAS_SCROLL_BARS = True`."""
    with ExitStack() as stack:
        try:
            yield stack.enter_context(launched_chromium(getattr(request.module, "HAS_SCROLL_BARS", False)))
        except LookupError as missing:
            pytest.skip(str(missing))


@pytest.fixture(scope="module")
def new_harness(built_page: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Harness]]:
    """Return `new_harness(config="", app=None)`, which starts a server that runs until the file's last test has
    ended."""
    with ExitStack() as stack:

        def made(config: str = "", app: Path | None = None) -> Harness:
            harness = stack.enter_context(closing(Harness(tmp_path_factory.mktemp("harness"), config, app)))
            harness.start()
            return harness

        yield made


@pytest.fixture(scope="module")
def server(request: pytest.FixtureRequest, new_harness: Callable[..., Harness]) -> Harness:
    """Start the file's own `threadcast serve`."""
    return new_harness(getattr(request.module, "CONFIG", ""), getattr(request.module, "APP", None))


@pytest.fixture
def open_page(request: pytest.FixtureRequest, browser: Browser, server: Harness) -> Iterator[People]:
    """Return the function that opens tabs: `open_page("/c/hello")`. Errors that the tabs report fail the test."""
    name = re.sub(r"\W+", "-", request.node.name)[:80]
    with closing(People(browser, server.url, name)) as people:
        yield people
        if request.node.stash.get(FAILED, False):
            people.shoot_all()
        assert not people.complaints, "\n".join(people.complaints)


@pytest.fixture
def page(open_page: People) -> Page:
    """Open a tab with a new chat."""
    return open_page("/")


@pytest.fixture
def chat_id() -> str:
    return f"chat-{uuid.uuid4().hex[:12]}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Remember that a test failed; its fixtures store pictures when they are torn down."""
    report: pytest.TestReport = yield  # type: ignore[assignment] # a wrapper is sent the result
    item.stash[FAILED] = item.stash.get(FAILED, False) or report.failed
    return report  # type: ignore[return-value] # and gives it on
