"""The example of a page on `@ag-ui/client`, built by vite, in Chromium: two tabs, a reload, an approval and Stop."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.door_pages import agree, at_rest, opened_example, send, set_model, texts
from tests.support.server import Process


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Process, str]]:
    with opened_example("ag-ui", "@ag-ui/client", "dist/index.mjs", tmp_path_factory.mktemp("ag-ui")) as opened:
        yield opened


def test_two_tabs_a_reload_an_approval_and_stop(browser: Browser, example: tuple[Process, str]) -> None:
    server, url = example
    context = browser.new_context()
    first = context.new_page()
    first.goto(url)
    at_rest(first)
    send(first, 'call calculator {"expression": "6*7"}')
    expect(first.get_by_role("button", name="Approve")).to_be_visible()
    second = context.new_page()
    second.goto(first.url)
    expect(second.get_by_role("button", name="Approve")).to_be_visible()
    agree(second, first)
    second.get_by_role("button", name="Approve").click()
    expect(second.get_by_role("listitem").last).to_contain_text("42")
    at_rest(second)
    first.reload()
    expect(first.get_by_role("listitem").last).to_contain_text("42")
    at_rest(first)
    agree(first, second)
    count = len(texts(second)) + 2
    set_model(first, server, "demo/hang?after=2&rate=0")
    send(first, "and now something endless")
    expect(first.get_by_role("listitem")).to_have_count(count)
    second.reload()  # joins the open run
    expect(second.get_by_role("listitem")).to_have_count(count)
    expect(second.get_by_role("button", name="Stop")).to_be_visible()
    second.get_by_role("button", name="Stop").click()
    for page in (first, second):
        at_rest(page)
        expect(page.get_by_role("status")).to_be_empty()
    agree(first, second)
    first.reload()
    agree(first, second)
    context.close()
