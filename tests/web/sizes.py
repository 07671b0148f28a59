"""What a browser loads, as a server may pack it (gzip): the client alone, the page's first sight, all of the page.

Measured on built files; `tests/web/test_sizes.py` holds the bars and `python -m bench.page` prints the figures.
"""

import gzip
import re
import subprocess
from pathlib import Path

from server.api.page import STATIC
from tests.web.installed import CLIENT, WEB

__all__ = ["CLIENT_MAX_BYTES", "PAGE_MAX_BYTES", "client_bytes", "first_files", "packed_bytes", "page_files"]

CLIENT_MAX_BYTES = 13_500
"""gzipped. The ways for browsers where a SharedWorker fails stand in it, since what fails to load cannot be loaded
then."""

PAGE_MAX_BYTES = 90_000
"""gzipped; kB are thousands. The page's is for what is loaded before anything is shown: highlighting, settings and the
like come when they are wanted, and the worker beside the page."""

BUNDLE_SECONDS = 60

STATIC_IMPORT = re.compile(r"""(?:\bfrom|\bimport)\s*["']\./([\w.-]+\.js)["']""")
"""`import … from "./a.js"`, `import "./a.js"`: loaded before the page runs; `import("./a.js")` is not."""


def client_bytes(directory: Path) -> int:
    """The client library alone, as a bundler packs it (in `directory`) for somebody who imports all of it."""
    bundle = directory / "client.js"
    subprocess.run(
        [WEB / "node_modules" / ".bin" / "rolldown", CLIENT / "dist" / "index.js", "--minify", "-o", bundle],
        capture_output=True,
        timeout=BUNDLE_SECONDS,
        check=True,
    )
    return packed_bytes([bundle])


def page_files() -> list[Path]:
    """Every script and style sheet of the page, also those that are loaded when they are wanted first."""
    return sorted(path for path in (STATIC / "assets").iterdir() if path.suffix in (".js", ".css"))


def first_files() -> list[Path]:
    """What is loaded before anything is shown: named by `index.html`, and imported by what it names."""
    index = (STATIC / "index.html").read_text("utf-8")
    wanted = re.findall(r"""(?:src|href)="/assets/([\w.-]+\.(?:js|css))\"""", index)
    found: list[Path] = []
    while wanted:
        path = STATIC / "assets" / wanted.pop()
        if path not in found:
            found.append(path)
            wanted += STATIC_IMPORT.findall(path.read_text("utf-8"))
    return sorted(found)


def packed_bytes(files: list[Path]) -> int:
    return sum(len(gzip.compress(path.read_bytes())) for path in files)
