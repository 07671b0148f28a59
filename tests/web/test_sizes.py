"""The files of the page are small enough for a phone with a bad connection, and have licences that only require passing
on the licence text.

`-rP` prints the figures.
"""

import re
from pathlib import Path

import pytest

from tests.web.installed import CLIENT, WEB
from tests.web.sizes import CLIENT_MAX_BYTES, PAGE_MAX_BYTES, client_bytes, opened_files, packed_bytes, page_files
from threadcast.api.page import STATIC

PERMISSIVE = {"MIT", "ISC", "Apache-2.0", "BSD-3-Clause"}
"""A library under several licences may be passed on under one of these."""


def test_the_client_alone_is_at_most_13_500_bytes(tmp_path: Path) -> None:
    if not (WEB / "node_modules/.bin/rolldown").exists() or not (CLIENT / "dist/index.js").exists():
        pytest.skip("the client is not built; run `scripts/web build`")
    size = client_bytes(tmp_path)
    print(f"client: {size:,} bytes")
    assert size <= CLIENT_MAX_BYTES


def test_what_the_page_loads_until_an_answer_is_seen_is_at_most_90_kb() -> None:
    if not (STATIC / "index.html").is_file():
        pytest.skip("the page is not built; run `scripts/web build`")
    whole, opened = page_files(), opened_files()
    for path in whole:
        print(f"{path.name}: {packed_bytes([path]):,} bytes{', for an open chat' * (path in opened)}")
    print(f"for an open chat {packed_bytes(opened):,} bytes, in all {packed_bytes(whole):,}")
    names = " ".join(path.name for path in opened)
    assert all(f"{name}-" in names for name in ("index", "client", "markdown", "queue", "worker")), names
    assert packed_bytes(opened) <= PAGE_MAX_BYTES


def test_the_libraries_in_the_page_have_licences_that_ask_only_to_be_passed_on() -> None:
    """Vite lists each library as `## name - version (licence)`; the source of licences' names is SPDX."""
    if not (STATIC / "licenses-diagram.md").is_file():
        pytest.skip("the page is not built; run `scripts/web build`")
    lists = (STATIC / "licenses.md").read_text("utf-8") + (STATIC / "licenses-diagram.md").read_text("utf-8")
    licences = dict(re.findall(r"^## (\S+) - [\d.]+ \((.+)\)$", lists, re.M))
    assert {"mermaid", "katex", "preact"} <= licences.keys()
    asks_more = {
        name: licence for name, licence in licences.items() if not PERMISSIVE & set(re.findall(r"[\w.-]+", licence))
    }
    assert asks_more == {}
