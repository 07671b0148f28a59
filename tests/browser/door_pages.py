"""Builds the pages of `examples/doors` with the published packages, and serves them as `npm run preview` does."""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.peers.installed import PEERS, node_package
from tests.ports import free_port
from tests.support.server import ROOT, Process, started_server

__all__ = ["agree", "at_rest", "opened_example", "send", "set_model", "texts"]

VITE = ROOT / "web/node_modules/vite/bin/vite.js"
PORT = "http://localhost:5173"
"""The origin in the examples' configuration, which the test replaces by its own."""

CONFIG = '\n[models]\ndefault = "demo/tools"\n[tools.calculator]\npolicy = "ask"\n'


@contextmanager
def opened_example(name: str, package: str, entry: str, directory: Path) -> Iterator[tuple[Process, str]]:
    """Start a server with the example's configuration and a tool that asks; yields the server and the address of the
    page."""
    node, _ = node_package(package, entry)
    if not VITE.is_file():
        pytest.skip("vite is not installed; `scripts/web build` installs it")
    port = free_port()
    config = (ROOT / f"examples/doors/{name}/threadcast.toml").read_text("utf-8")
    assert PORT in config
    (directory / "server").mkdir()
    config = config.replace(PORT, f"http://127.0.0.1:{port}") + CONFIG
    with started_server(directory / "server", config=config) as starting:
        server = starting.wait_ready()
        here = Path(shutil.copytree(ROOT / f"examples/doors/{name}", directory / "page"))
        (here / "node_modules").symlink_to(PEERS)
        environment = {**os.environ, "THREADCAST_URL": server.url, "THREADCAST_WEB": str(ROOT / "web")}
        subprocess.run([node, VITE, "build"], cwd=here, env=environment, check=True, capture_output=True, timeout=60)
        line = [node, str(VITE), "preview", "--port", str(port), "--strictPort", "--host", "127.0.0.1"]
        with subprocess.Popen(line, cwd=here, env=environment, stdout=subprocess.PIPE, text=True) as preview:
            assert preview.stdout is not None
            try:
                bare = (re.sub(r"\x1b\[[0-9;]*m", "", told) for told in preview.stdout)
                found = (re.search(r"(http://127\.0\.0\.1:\d+)/", told) for told in bare)
                yield server, next(each[1] for each in found if each)
            finally:
                preview.kill()


def send(page: Page, words: str) -> None:
    page.get_by_label("Message").fill(words)
    page.get_by_role("button", name="Send").click()


def texts(page: Page) -> list[str]:
    return page.get_by_role("listitem").all_inner_texts()


def agree(page: Page, settled: Page) -> None:
    """Wait until a page shows the same messages as the page `settled`."""
    expect(page.get_by_role("listitem")).to_have_text(texts(settled), use_inner_text=True)


def at_rest(page: Page) -> None:
    expect(page.get_by_role("button", name="Stop")).to_be_hidden()
    expect(page.get_by_role("button", name="Send")).to_be_enabled()


def set_model(page: Page, server: Process, model: str) -> None:
    """Set the model of the chat that the page shows."""
    chat = page.url.partition("#")[2]
    body = {"type": "set_params", "client_request_id": "p", "patch": {"model": model}}
    assert page.context.request.post(f"{server.url}/v1/chats/{chat}/commands", data=body).ok
