"""Starts a real Chromium for playwright: Debian's if it is installed, or else playwright's own.

Chromium shows only pages of the tests, so it runs without its sandbox, which containers do not allow. `bench.page`
starts it the same way as the tests do.
"""

import shutil
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from playwright.sync_api import Browser, BrowserType, sync_playwright

__all__ = ["launch", "launched_chromium"]

ARGUMENTS = [
    "--no-sandbox",  # the user is root in containers
    "--disable-dev-shm-usage",  # /dev/shm has 64 MB in containers; nine tabs need more
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@contextmanager
def launched_chromium(has_scroll_bars: bool = False) -> Iterator[Browser]:
    """Start a Chromium for a block; optionally with visible scroll bars, which can be dragged.

    Raises:
        LookupError: no Chromium is installed; the message tells how to install it.
    """
    without = ["--hide-scrollbars"] if has_scroll_bars else []
    with sync_playwright() as playwright, closing(launch(playwright.chromium, without=without)) as chromium:
        yield chromium


def launch(kind: BrowserType, *, without: Sequence[str] = ()) -> Browser:
    """Start another Chromium, without the default arguments of playwright in `without`. Raises LookupError."""
    found = shutil.which("chromium") or kind.executable_path
    if not Path(found).is_file():
        raise LookupError("there is no Chromium; `apt-get install chromium` brings one")
    return kind.launch(executable_path=found, args=ARGUMENTS, ignore_default_args=list(without) or None)
