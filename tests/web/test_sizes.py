"""The page is small: what a telephone on a bad line loads. `-rP` prints the figures."""

from pathlib import Path

import pytest

from server.api.page import STATIC
from tests.web.installed import CLIENT, WEB
from tests.web.sizes import CLIENT_MAX_BYTES, PAGE_MAX_BYTES, client_bytes, first_files, packed_bytes, page_files


def test_the_client_alone_is_at_most_13_500_bytes(tmp_path: Path) -> None:
    if not (WEB / "node_modules/.bin/rolldown").exists() or not (CLIENT / "dist/index.js").exists():
        pytest.skip("the client is not built; run `scripts/web build`")
    size = client_bytes(tmp_path)
    print(f"client: {size:,} bytes")
    assert size <= CLIENT_MAX_BYTES


def test_what_the_page_loads_before_it_shows_anything_is_at_most_90_kb() -> None:
    if not (STATIC / "index.html").is_file():
        pytest.skip("the page is not built; run `scripts/web build`")
    whole, first = page_files(), first_files()
    for path in whole:
        print(f"{path.name}: {packed_bytes([path]):,} bytes{', at first' * (path in first)}")
    print(f"at first {packed_bytes(first):,} bytes, in all {packed_bytes(whole):,}")
    assert 0 < packed_bytes(first) <= PAGE_MAX_BYTES
