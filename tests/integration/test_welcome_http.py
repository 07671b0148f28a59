"""The welcome data before the first message, the origins that may frame the page, and companions, over real HTTP."""

from collections.abc import Iterator
from pathlib import Path

import anyio
import httpx2
import pytest

from tests.support.server import Process, start

pytestmark = pytest.mark.anyio

CONFIG = """
[server]
app = "app.py"
pages = "own"
frame_origins = ["self", "https://app.example.com"]

[profiles.desk]
title = "Desk"
greeting = "At the desk."
starters = [{ title = "Hours", text = "When?", context = { desk = 1 } }]

[profiles.desk.scopes.reports]
greeting = "At the reports."
"""

APP = '''
from pathlib import Path

from threadcast import Client

from threadcast import Welcome, companion

hello = Welcome(greeting="Hello.")


@companion()
async def writer(url: str) -> None:
    """Writes down what the server says, through its own address."""
    async with Client(url) as client:
        answer = await client.request("GET", "/v1/ping")
    Path("SAID").write_text(answer.text)


@companion()
async def broken(url: str) -> None:
    raise RuntimeError("no luck")
'''


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("welcome")


@pytest.fixture(scope="module")
def server(base: Path) -> Iterator[Process]:
    (base / "threadcast.toml").write_text(CONFIG)
    (base / "app.py").write_text(APP.replace("SAID", str(base / "said")))
    (base / "own").mkdir()
    (base / "own" / "index.html").write_text("<!doctype html><title>Own</title>")
    arguments = ["serve", "--port", "0", "--data-dir", str(base / "data"), "--config", str(base / "threadcast.toml")]
    with start(*arguments, log=base / "log") as process:
        anyio.run(process.ready)
        yield process


async def modes(server: Process, query: str = "") -> dict[str, dict[str, object]]:
    async with httpx2.AsyncClient(base_url=server.url) as client:
        answer = await client.get(f"/v1/chat-modes{query}")
    assert answer.status_code == 200, answer.text
    return {mode["id"]: mode for mode in answer.json()["modes"]}


async def test_modes_say_their_greeting_and_starters_and_in_a_place_those_of_the_place(server: Process) -> None:
    starter = {"title": "Hours", "text": "When?", "model": "", "context": {"desk": 1}}
    found = await modes(server)
    assert (found["desk"]["greeting"], found["desk"]["starters"]) == ("At the desk.", [starter])
    assert (found["agent"]["greeting"], found["agent"]["starters"]) == ("Hello.", None)
    there = await modes(server, "?scope=reports/r-7")
    assert (there["desk"]["greeting"], there["desk"]["starters"]) == ("At the reports.", [starter])
    assert there["agent"]["greeting"] == "Hello."


async def test_what_is_no_scope_is_refused(server: Process) -> None:
    async with httpx2.AsyncClient(base_url=server.url) as client:
        answer = await client.get("/v1/chat-modes?scope=a/b/c/d")
    assert (answer.status_code, answer.json()["path"]) == (400, "/scope")


async def test_caps_name_who_may_frame_the_page_and_whose_answers_no_model_writes(server: Process) -> None:
    async with httpx2.AsyncClient(base_url=server.url) as client:
        caps = (await client.get("/v1/caps")).json()
        page = await client.get("/")
        own = await client.get("/pages/")
    assert caps["frame_origins"] == ["self", "https://app.example.com"]
    assert caps["scripted_providers"] == ["demo"]
    if page.status_code == 200:  # built
        assert page.headers["content-security-policy"].endswith("frame-ancestors 'self' https://app.example.com")
    assert (own.status_code, "Own" in own.text) == (200, True)


async def test_companions_run_beside_the_server_and_one_that_fails_ends_nothing(server: Process, base: Path) -> None:
    with anyio.fail_after(5):
        said = anyio.Path(base / "said")
        while not await said.exists() or "companion.failed" not in server.log_text():
            await anyio.sleep(0.02)
    assert await said.read_text() == "pong"
    assert "RuntimeError: no luck" in server.log_text()
    assert await modes(server)
