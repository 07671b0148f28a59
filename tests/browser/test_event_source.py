"""A browser's own EventSource on a stream, without Threadcast's client: the events that it delivers, and the time until
it reconnects."""

from contextlib import closing

import pytest
from anyio.from_thread import start_blocking_portal
from playwright.sync_api import Browser

from tests.browser.harness import SCREEN_MS, Harness
from tests.peers.plain_stream import PlainStream
from tests.torture.proxy import Proxy

pytestmark = pytest.mark.slow(10)

WATCH = """(urls) => {
    window.heard = [];
    for (const [name, url] of Object.entries(urls)) {
        new EventSource(url).onmessage = (event) => window.heard.push([name, JSON.parse(event.data).type]);
    }
}"""


@pytest.mark.row("NET-8", "EVT-4")
def test_a_browser_comes_back_sooner_after_a_cut_than_it_would_by_itself(
    browser: Browser, server: Harness, chat_id: str
) -> None:
    """A second stream asks for a pause of 1.5 s (Chromium's default is 3 s). Both streams are cut, and Threadcast's
    stream reconnects first."""
    line, plain = Proxy("browser > server", ("127.0.0.1", int(server.url.rpartition(":")[2]))), PlainStream()
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(line),
        portal.wrap_async_context_manager(plain),
        closing(browser.new_page()) as page,
    ):
        near = f"http://127.0.0.1:{line.port}"
        page.goto(f"{near}/v1/ping")
        page.evaluate(WATCH, {"ours": f"{near}/v1/chats/subscribe?chat_id={chat_id}", "plain": plain.url})
        page.wait_for_function("new Set(window.heard.map(String)).size === 2", timeout=SCREEN_MS)
        assert sorted(page.evaluate("window.heard")) == [["ours", "snapshot"], ["plain", None]]
        portal.call(plain.cut)
        portal.call(line.reset)
        server.command(chat_id, "set_params", patch={"title": "meanwhile"})
        page.wait_for_function("window.heard.filter(([name]) => name === 'plain').length > 1", timeout=SCREEN_MS)
        assert page.evaluate("window.heard")[2][0] == "ours"
