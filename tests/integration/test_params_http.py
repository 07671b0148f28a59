"""What holds for a chat and where it comes from, over real HTTP with a configuration of its own (SET-1)."""

from collections.abc import Iterator
from pathlib import Path

import anyio
import httpx2
import pytest

from tests.integration.harness import Process, command, start, user_message, watching

pytestmark = pytest.mark.anyio

CONFIG = """
[limits]
max_rounds = 7

[profiles.writer]
model = "demo/hang"
params = { temperature = 0.3, on_limit = "summarize" }
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    base = tmp_path_factory.mktemp("params")
    (base / "threadcast.toml").write_text(CONFIG)
    arguments = ["serve", "--port", "0", "--data-dir", str(base / "data"), "--config", str(base / "threadcast.toml")]
    with start(*arguments, log=base / "log") as process:
        anyio.run(process.ready)
        yield process


@pytest.mark.row("SET-1")
async def test_every_parameter_is_shown_with_the_layer_that_decides_it(server: Process) -> None:
    patch = {"mode": "writer", "top_p": 0.5}
    await command(server.url, "c1", {"type": "set_params", "client_request_id": "p", "patch": patch})
    async with watching(server.url, "c1") as watcher, httpx2.AsyncClient() as client:
        await command(server.url, "c1", user_message("a", "hi", params={"max_tokens": 5}))
        await watcher.until(lambda w: w.state is not None and w.state.draft is not None)
        shown = (await client.get(f"{server.url}/v1/chats/c1/params")).json()["params"]
        await command(server.url, "c1", {"type": "abort", "client_request_id": "x"})
        rested = (await client.get(f"{server.url}/v1/chats/c1/params")).json()["params"]
    assert {key: (shown[key]["value"], shown[key]["layer"]) for key in EXPECTED} == EXPECTED
    assert rested["max_tokens"] == {"value": None, "layer": "server"}


EXPECTED = {
    "max_tokens": (5, "command"),
    "top_p": (0.5, "thread"),
    "mode": ("writer", "thread"),
    "temperature": (0.3, "profile"),
    "on_limit": ("summarize", "profile"),
    "model": ("demo/hang", "profile"),
    "max_rounds": (7, "profile"),
    "on_abort": ("keep", "server"),
}


async def test_the_parameters_of_no_chat_are_404(server: Process) -> None:
    async with httpx2.AsyncClient() as client:
        answer = await client.get(f"{server.url}/v1/chats/nowhere/params")
    assert (answer.status_code, answer.json()["code"]) == (404, "not_found")


def test_a_profile_cannot_set_what_a_thread_always_has(tmp_path: Path) -> None:
    config = tmp_path / "threadcast.toml"
    for params, said in {
        "autonomous_no_confirm = true": "autonomous_no_confirm",
        "temperature = 9": "temperature",
    }.items():
        config.write_text(f"[profiles.writer.params]\n{params}\n")
        with start(
            "serve", "--data-dir", str(tmp_path / "d"), "--config", str(config), log=tmp_path / "log"
        ) as process:
            assert anyio.run(process.ended) == 1
        assert f"profiles.writer.params.{said}" in (tmp_path / "log").read_text()
