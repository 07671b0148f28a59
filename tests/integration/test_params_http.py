"""The effective parameters of a chat and their layers, over real HTTP with a configuration of its own (SET-1)."""

from collections.abc import Iterator
from pathlib import Path

import anyio
import httpx2
import pytest

from tests.support.reader import watching
from tests.support.server import Process, command, serving, start, started_server, user_message

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
    with started_server(base, is_durable=True, config=CONFIG) as process:
        yield process.wait_ready()


@pytest.mark.row("SET-1")
async def test_every_parameter_is_shown_with_the_layer_that_decides_it(
    server: Process, client: httpx2.AsyncClient
) -> None:
    patch = {"mode": "writer", "top_p": 0.5}
    await command(server.url, "c1", {"type": "set_params", "client_request_id": "p", "patch": patch})
    async with watching(server.url, "c1") as watcher:
        await command(server.url, "c1", user_message("a", "hi", params={"max_tokens": 5}))
        await watcher.until(lambda w: w.state is not None and w.state.draft is not None)
        shown = (await client.get("/v1/chats/c1/params")).json()["params"]
        await command(server.url, "c1", {"type": "abort", "client_request_id": "x"})
        rested = (await client.get("/v1/chats/c1/params")).json()["params"]
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


async def test_the_parameters_of_no_chat_are_404(client: httpx2.AsyncClient) -> None:
    answer = await client.get("/v1/chats/nowhere/params")
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


async def test_a_message_chooses_its_own_profile_and_only_one_that_is_there(server: Process) -> None:
    refused = await command(server.url, "c9", user_message("a", "hi", params={"mode": "nobody"}))
    assert (refused.status_code, refused.json()["path"]) == (400, "/params/mode")
    async with watching(server.url, "c9") as watcher:
        say = user_message("b", "hi", params={"mode": "writer", "model": "demo/echo"})
        assert (await command(server.url, "c9", say)).status_code == 202
        await watcher.at_rest()
        await command(server.url, "c9", user_message("c", "and now", params={"mode": "writer"}))
        await watcher.until(lambda w: w.state is not None and w.state.draft is not None)
        assert watcher.state is not None and watcher.state.draft is not None
        assert watcher.state.draft.message.model == "demo/hang", "the model of that profile"
        await command(server.url, "c9", {"type": "abort", "client_request_id": "x"})


async def test_a_commit_tool_is_in_no_list_of_what_models_are_offered(tmp_path: Path) -> None:
    (tmp_path / "drafts.py").write_text(
        """
from threadcast import Preview, Traits, tool

@tool(policy="preview", traits=Traits(payload_type="draft", commit_tool="save_draft"))
def propose_draft(title: str) -> Preview:
    "Propose."
    return Preview("a draft", {"title": title})

@tool()
def save_draft(title: str) -> str:
    "Save."
    return "saved"
"""
    )
    async with (
        serving(tmp_path, app=tmp_path / "drafts.py") as process,
        httpx2.AsyncClient(base_url=process.url) as client,
    ):
        for query in ("", "?mode=agent"):
            names = {tool["name"] for tool in (await client.get(f"/v1/tools{query}")).json()}
            assert "propose_draft" in names and "save_draft" not in names
