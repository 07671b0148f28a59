"""Measures the files that a browser loads, compressed like the server does (gzip).

It reads the built files. `tests/web/test_sizes.py` checks the limits, and `python -m bench.page` prints the figures.
"""

import gzip
import json
import re
import subprocess
from pathlib import Path

from tests.web.installed import CLIENT, WEB
from threadcast.api.page import STATIC

__all__ = [
    "CLIENT_MAX_BYTES",
    "PAGE_MAX_BYTES",
    "client_bytes",
    "first_files",
    "opened_files",
    "packed_bytes",
    "page_files",
]

CLIENT_MAX_BYTES = 13_500
"""Maximum bytes of the client library, gzipped. The library includes the code for browsers without a SharedWorker,
because that code may not be loadable when it is needed."""

PAGE_MAX_BYTES = 90_000
"""Maximum bytes, gzipped, of all scripts and style sheets that a browser fetches until an open chat with an answer in
Markdown is painted, including the SharedWorker's script. A kB is 1,000 bytes. Formulas, diagrams, colours of code and
settings are loaded later."""

GZIP_LEVEL = 6
"""The level of `server/threadcast/api/page.py`."""

CLIENT_GZIP_LEVEL = 9
"""The best compression of gzip, as for a bundle that is compressed once."""

BUNDLE_SECONDS = 60

STATIC_IMPORT = re.compile(r"""(?:\bfrom|\bimport)\s*["']\./([\w.-]+\.js)["']""")
"""Matches `import … from "./a.js"` and `import "./a.js"`, which load before the page runs, but not
`import("./a.js")`."""

LATER_IMPORT = re.compile(
    r"""import\([`"']\./(?:markdown|queue)-[\w-]+\.js[`"']\)[^[]*?__vite__mapDeps\(\[([\d,]+)\]\)"""
)
"""Matches Vite's dynamic import of a file, with the numbers of that file's imports and style sheets in Vite's list of
names. An open chat imports its Markdown and its queue of unsent messages."""

LIST_OF_LATER = re.compile(r"m\.f=(\[[^\]]*\])")

WORKER = re.compile(r"/assets/(worker-[\w-]+\.js)")


def client_bytes(directory: Path) -> int:
    """Return the size of the client library, bundled (in `directory`) for a program that imports all of it."""
    bundle = directory / "client.js"
    subprocess.run(
        [WEB / "node_modules" / ".bin" / "rolldown", CLIENT / "dist" / "index.js", "--minify", "-o", bundle],
        capture_output=True,
        timeout=BUNDLE_SECONDS,
        check=True,
    )
    return packed_bytes([bundle], CLIENT_GZIP_LEVEL)


def page_files() -> list[Path]:
    """Return all scripts and style sheets of the page, including those that are loaded later."""
    return sorted(path for path in (STATIC / "assets").iterdir() if path.suffix in (".js", ".css"))


def first_files() -> list[Path]:
    """Return the files that are loaded before the page is shown: those that `index.html` names, and their imports."""
    index = (STATIC / "index.html").read_text("utf-8")
    wanted = re.findall(r"""(?:src|href)="/assets/([\w.-]+\.(?:js|css))\"""", index)
    found: list[Path] = []
    while wanted:
        path = STATIC / "assets" / wanted.pop()
        if path not in found:
            found.append(path)
            wanted += STATIC_IMPORT.findall(path.read_text("utf-8"))
    return sorted(found)


def opened_files() -> list[Path]:
    """Return the files that are loaded until an open chat with an answer in Markdown is painted.
    `tests/browser/test_first_load.py` compares this list with what Chromium fetches."""
    names = {path.name for path in first_files()}
    for path in first_files():
        text = path.read_text("utf-8")
        names.update(WORKER.findall(text))
        later = LIST_OF_LATER.search(text)
        for found in LATER_IMPORT.findall(text):
            assert later, f"{path.name} imports from a list that it does not have"
            listed: list[str] = json.loads(later[1])
            names.update(listed[int(number)].removeprefix("assets/") for number in found.split(","))
    return sorted(STATIC / "assets" / name for name in names)


def packed_bytes(files: list[Path], level: int = GZIP_LEVEL) -> int:
    return sum(len(gzip.compress(path.read_bytes(), level)) for path in files)
