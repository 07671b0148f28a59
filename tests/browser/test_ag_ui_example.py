"""The example of a page on `@ag-ui/client`, built by vite, in Chromium: two tabs, a reload, an approval and Stop."""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.peers.installed import PEERS, node_package
from tests.ports import free_port
from tests.support.server import ROOT, Process, started_server

VITE = ROOT / "web/node_modules/vite/bin/vite.js"
PORT = "http://localhost:5173"
"""The origin in the example's configuration, which the test replaces by its own."""

CONFIG = '\n[models]\ndefault = "demo/tools"\n[tools.calculator]\npolicy = "ask"\n'


@pytest.fixture(scope="module")
def page_url() -> str:
    return f"http://127.0.0.1:{free_port()}"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, page_url: str) -> Iterator[Process]:
    config = (ROOT / "examples/doors/ag-ui/threadcast.toml").read_text("utf-8")
    assert PORT in config
    config = config.replace(PORT, page_url) + CONFIG
    with started_server(tmp_path_factory.mktemp("server"), config=config) as process:
        yield process.wait_ready()


@pytest.fixture(scope="module")
def served_page(server: Process, page_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Build a copy of the example with the published client, serve it, and return its address."""
    node, _ = node_package("@ag-ui/client", "dist/index.mjs")
    if not VITE.is_file():
        pytest.skip("vite is not installed; `scripts/web build` installs it")
    here = Path(shutil.copytree(ROOT / "examples/doors/ag-ui", tmp_path_factory.mktemp("page") / "page"))
    (here / "node_modules").symlink_to(PEERS)
    environment = {**os.environ, "THREADCAST_URL": server.url}
    subprocess.run([node, VITE, "build"], cwd=here, env=environment, check=True, capture_output=True, timeout=60)
    line = [node, str(VITE), "preview", "--port", page_url.rpartition(":")[2], "--strictPort", "--host", "127.0.0.1"]
    with subprocess.Popen(line, cwd=here, env=environment, stdout=subprocess.PIPE, text=True) as preview:
        assert preview.stdout is not None
        try:
            bare = (re.sub(r"\x1b\[[0-9;]*m", "", told) for told in preview.stdout)
            yield next(found[1] for told in bare if (found := re.search(r"(http://127\.0\.0\.1:\d+)/", told)))
        finally:
            preview.kill()


def send(page: Page, words: str) -> None:
    page.get_by_label("Message").fill(words)
    page.get_by_role("button", name="Send").click()


def texts(page: Page) -> list[str]:
    return page.get_by_role("listitem").all_inner_texts()


def at_rest(page: Page) -> None:
    expect(page.get_by_role("button", name="Stop")).to_be_hidden()
    expect(page.get_by_role("button", name="Send")).to_be_enabled()


def test_two_tabs_a_reload_an_approval_and_stop(browser: Browser, server: Process, served_page: str) -> None:
    context = browser.new_context()
    first = context.new_page()
    first.goto(served_page)
    at_rest(first)
    send(first, 'call calculator {"expression": "6*7"}')
    expect(first.get_by_role("button", name="Approve")).to_be_visible()
    second = context.new_page()
    second.goto(first.url)
    expect(second.get_by_role("button", name="Approve")).to_be_visible()
    assert texts(second) == texts(first)
    second.get_by_role("button", name="Approve").click()
    expect(second.get_by_role("listitem").last).to_contain_text("42")
    at_rest(second)
    first.reload()
    expect(first.get_by_role("listitem").last).to_contain_text("42")
    at_rest(first)
    assert texts(first) == texts(second)
    chat = first.url.partition("#")[2]
    body = {"type": "set_params", "client_request_id": "p", "patch": {"model": "demo/hang?after=2&rate=0"}}
    assert context.request.post(f"{server.url}/v1/chats/{chat}/commands", data=body).ok
    send(first, "and now something endless")
    expect(first.get_by_role("listitem")).to_have_count(len(texts(second)) + 2)
    second.reload()  # joins the open run
    expect(second.get_by_role("listitem")).to_have_count(first.get_by_role("listitem").count())
    expect(second.get_by_role("button", name="Stop")).to_be_visible()
    second.get_by_role("button", name="Stop").click()
    for page in (first, second):
        at_rest(page)
        expect(page.get_by_role("status")).to_be_empty()
    assert texts(first) == texts(second)
    first.reload()
    expect(first.get_by_role("listitem")).to_have_count(len(texts(second)))
    assert texts(first) == texts(second)
    context.close()
