"""Authentication by tokens: callers, the owners of chats, and configurations that the start refuses."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import pytest

from tests.support.reader import watching
from tests.support.server import Process, command, serving, start, user_message
from tests.support.tokens import bearer, tokens

pytestmark = pytest.mark.anyio

CONFIG = """
[server]
cors_origins = ["https://app.example"]
""" + tokens(ann='permissions = ["approve"]', bob="permissions = []")


@asynccontextmanager
async def guarded(tmp_path: Path) -> AsyncIterator[Process]:
    async with serving(tmp_path, config=CONFIG) as process:
        yield process


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Process]:
    async with guarded(tmp_path) as process:
        yield process


@pytest.mark.row("AUTH-1", "AUTH-2")
async def test_with_tokens_every_endpoint_asks_who_calls_and_foreign_chats_do_not_exist(
    server: Process, client: httpx2.AsyncClient
) -> None:
    subscribe = "/v1/chats/subscribe?chat_id=c1"
    paths = ["/v1/chats", "/v1/chats/c1", "/v1/caps", "/v1/tools", "/v1/providers", "/v1/chat-modes", subscribe]
    for path in paths:
        for headers in ({}, {"Authorization": "Bearer nobody"}, {"Authorization": "Basic eDp5"}):
            answer = await client.get(path, headers=headers)
            assert (answer.status_code, answer.json()["code"]) == (401, "unauthorized"), path
    assert (await command(server.url, "c1", user_message("a", "x"))).status_code == 401
    assert (await client.get("/v1/ping")).status_code == 200

    async with watching(server.url, "c1", headers=bearer("ann")) as watcher:
        await command(server.url, "c1", user_message("a", "mine"), bearer("ann"))
        await watcher.at_rest()
    assert watcher.frames[-1]["outcome"] == "complete"
    added = next(f for f in watcher.frames if f["type"] == "message_added")
    assert added["message"]["by"] == "ann"
    assert all(f["by"] == "ann" for f in watcher.frames if f["type"] == "ack")

    bob = bearer("bob")
    blobs = "/v1/chats/c1/blobs"
    mine = (await client.post(blobs, content=b"mine", headers=bearer("ann"))).json()["url"]
    assert (await client.get(mine)).status_code == 401
    assert (await client.get(mine, headers=bearer("ann"))).content == b"mine"
    unknown = await client.get("/v1/chats/never-was", headers=bob)
    for answer in (
        await client.get("/v1/chats/c1", headers=bob),
        await client.get(mine, headers=bob),
        await client.get(mine, headers={**bob, "If-None-Match": f'"{mine[-64:]}"'}),
        await client.delete("/v1/chats/c1", headers=bob),
        await client.delete("/v1/chats/c1/queue/a", headers=bob),
        await command(server.url, "c1", {"type": "regenerate", "client_request_id": "r"}, bob),
    ):
        assert answer.status_code == 404
    assert (await client.get("/v1/chats/c1", headers=bob)).json() == unknown.json()
    assert (await client.get("/v1/chats", headers=bob)).json()["items"] == []


async def test_who_watched_an_id_before_somebody_else_made_it_a_chat_sees_nothing(server: Process) -> None:
    async with watching(server.url, "c2", headers=bearer("bob")) as bob:
        await bob.until(lambda w: w.state is not None)
        async with watching(server.url, "c2", headers=bearer("ann")) as ann:
            await command(server.url, "c2", user_message("a", "private"), bearer("ann"))
            await ann.at_rest()
        refused = await command(server.url, "c2", user_message("b", "mine?"), bearer("bob"))
        assert refused.json()["code"] == "id_taken"
        assert not bob.has_ended
    assert bob.types() == ["snapshot"]


@pytest.mark.row("NET-7")
async def test_configured_origins_may_call_and_error_answers_carry_the_headers_too(client: httpx2.AsyncClient) -> None:
    origin = {"Origin": "https://app.example"}
    preflight = await client.request(
        "OPTIONS", "/v1/chats/c1/commands", headers={**origin, "Access-Control-Request-Method": "POST"}
    )
    assert preflight.status_code == 200
    refused = await client.get("/v1/chats", headers=origin)
    assert refused.status_code == 401
    assert refused.headers["access-control-allow-origin"] == "https://app.example"
    foreign = await client.get("/v1/chats", headers={"Origin": "https://evil.example", **bearer("ann")})
    assert foreign.status_code == 403
    # A frame without an origin may load the page's own files, which are public, and nothing else.
    assert (await client.get("/v1/chats", headers={"Origin": "null", **bearer("ann")})).status_code == 403
    assert (await client.post("/assets/a.js", headers={"Origin": "null"})).status_code == 403
    assert (await client.get("/assets/a.js", headers={"Origin": "null"})).status_code == 404


async def test_a_token_without_the_permission_may_not_approve(server: Process) -> None:
    await command(server.url, "c3", user_message("a", "x"), bearer("bob"))
    body = {"type": "tool_decision", "client_request_id": "d", "tool_call_id": "c0", "accepted": True}
    answer = await command(server.url, "c3", body, bearer("bob"))
    assert (answer.status_code, answer.json()["code"]) == (403, "forbidden")


@pytest.mark.parametrize(
    ("config", "arguments", "said"),
    [
        ("[server]\nprot = 1\n", [], "server.port"),
        ("[limits]\nlease_seconds = 'x'\n", [], "lease_seconds"),
        ("[limits]\nmax_rounds = 1000\n", [], "max_rounds"),
        ("[tools.clok]\nenabled = false\n", [], "clok"),
        ("[tools.clock]\npolicy = 'preview'\n", [], "preview"),
        ("", ["--host", "0.0.0.0"], "auth.tokens"),
        ("", ["--app", "/nowhere/tools.py"], "/nowhere/tools.py"),
        ("[models]\ndefault = 'nowhere/x'\n", [], "nowhere"),
        ("this is no toml", [], "toml"),
    ],
)
async def test_a_start_that_cannot_be_right_is_refused_with_a_sentence(
    tmp_path: Path, config: str, arguments: list[str], said: str
) -> None:
    file = tmp_path / "threadcast.toml"
    file.write_text(config)
    log = tmp_path / "log"
    with start("serve", "--port", "0", "--memory", "--config", str(file), *arguments, log=log) as process:
        assert await process.ended() in (1, 2)
        assert said in process.log_text()
        assert "Traceback" not in process.log_text()


async def test_a_port_that_is_taken_is_said_in_a_sentence(tmp_path: Path) -> None:
    async with serving(tmp_path) as first:
        port = first.url.rpartition(":")[2]
        with start("serve", "--port", port, "--memory", log=tmp_path / "b") as second:
            assert await second.ended() == 1
            assert "--port" in second.log_text()
            assert "Traceback" not in second.log_text()
