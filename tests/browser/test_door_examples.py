"""The pages of `examples/doors`, built by vite, in Chromium: two tabs, a reload, an approval and Stop. The page on
`@ai-sdk/react` runs with Threadcast's transport and with the AI SDK's own; the other page uses `@ag-ui/client`."""

from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.door_pages import agree, at_rest, opened_example, send, set_model, texts

PACKAGES = {"ai-sdk": "@ai-sdk/react", "ag-ui": "@ag-ui/client"}


@pytest.mark.parametrize(
    ("name", "query", "follows"), [("ai-sdk", "", True), ("ai-sdk", "?plain", False), ("ag-ui", "", False)]
)
def test_two_tabs_a_reload_an_approval_and_stop(
    browser: Browser, tmp_path: Path, name: str, query: str, *, follows: bool
) -> None:
    """If `follows`, a tab shows messages of other tabs at once; otherwise the tab shows them only after a reload."""

    def catch_up(page: Page) -> None:
        if not follows:
            page.reload()

    with opened_example(name, PACKAGES[name], "dist/index.mjs", tmp_path) as (server, url):
        context = browser.new_context()
        first = context.new_page()
        first.goto(f"{url}/{query}")
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
        catch_up(first)
        expect(first.get_by_role("listitem").last).to_contain_text("42")
        at_rest(first)
        agree(first, second)
        count = len(texts(second)) + 2  # the second tab may show the next turn at once
        set_model(first, server, "demo/hang?after=2&rate=0")
        send(first, "and now something endless")
        expect(first.get_by_role("listitem")).to_have_count(count)
        catch_up(second)
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
