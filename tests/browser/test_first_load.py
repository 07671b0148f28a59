"""Until an open chat is painted, the page loads only the files that `tests/web/sizes.py` counts."""

import re

from tests.browser.answers import answer, given
from tests.browser.harness import Harness, People
from tests.web.sizes import PAGE_MAX_BYTES, opened_files

CONFIG = """
[models]
default = "demo/echo?rate=0"
"""

ANSWER = """## Leases

A lease is a promise **with an end** ([why](https://example.org/)).

- It is taken by a number that only grows,
- and it is *renewed*.

| who | may |
| --- | --- |
| the owner | write |
"""

LOADED = """() => {
    const shown = performance.getEntriesByName('threadcast:shown')[0].startTime;
    const files = performance.getEntriesByType('resource').filter((each) => /\\.(?:js|css)$/.test(each.name));
    return files.map(({ name, encodedBodySize, startTime }) => [name, encodedBodySize, startTime < shown]);
}"""


def test_a_chat_is_painted_with_at_most_90_kb_of_scripts_and_style_sheets(
    open_page: People, server: Harness, chat_id: str
) -> None:
    given(server, chat_id, ANSWER)
    page = open_page(f"/c/{chat_id}")
    assert "renewed" in answer(page).inner_text()
    page.wait_for_function("performance.getEntriesByName('threadcast:shown').length > 0")
    loaded: list[tuple[str, int, bool]] = page.evaluate(LOADED)
    print(*loaded, sep="\n")
    counted = {path.name: path for path in opened_files()}
    assert {url.rpartition("/")[2] for url, _, is_needed in loaded if is_needed} <= counted.keys()
    assert any(re.search(r"/markdown-[\w-]+\.css$", url) for url, _, _ in loaded)
    workers = [name for name in counted if name.startswith("worker-")]  # not in the page's list
    assert len(workers) == 1
    worker = len(page.request.get(f"{server.url}/assets/{workers[0]}").body())  # too small for gzip
    assert sum(size for _, size, is_needed in loaded if is_needed) + worker <= PAGE_MAX_BYTES
