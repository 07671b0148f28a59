"""The transcripts of the protocol, played against our server in both of its forms; and servers that break it.

Each transcript is a test of its own. A broken server is ours behind a transport that damages one thing on its way, so
that every rule of the runner is seen to catch what it is there for.
"""

import json
import re
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import anyio
import anyio.to_thread
import httpx2
import pytest

from protocol.messages import JsonObject
from server.cli import main
from server.console.conformance.player import Result, play
from server.console.conformance.target import Target
from server.console.conformance.transcripts import Transcript, load, transcripts_directory
from server.store.server_process import ServerProcess
from tests.integration.harness import Process, start
from tests.integration.store_fixtures import fresh_url

pytestmark = pytest.mark.anyio

TRANSCRIPTS = {transcript.name: transcript for transcript in load(transcripts_directory())}

CONFIG = """
[tools.open_file]
policy = "client"
description = "Opens a file in the editor."

[profiles.agent]
payloads = ["article"]
"""


@pytest.fixture(scope="module", params=["serve", "web+worker"])
def played(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, valkey_server: ServerProcess
) -> Iterator[Process]:
    """Our server, all in one process, or as its two halves over one store."""
    base = tmp_path_factory.mktemp("conformance")
    config = base / "threadcast.toml"
    config.write_text(CONFIG)
    tools = str(Path(__file__).with_name("preview_tools.py"))
    shared = ["--config", str(config), "--data-dir", str(base / "data"), "--app", tools]
    with ExitStack() as stack:
        if request.param == "serve":
            web = stack.enter_context(start("serve", "--port", "0", *shared, log=base / "log"))
        else:
            environment = {"REDIS_URL": fresh_url(valkey_server)}
            worker = stack.enter_context(start("worker", *shared, log=base / "worker", environment=environment))
            anyio.run(worker.ready)
            web = stack.enter_context(start("web", "--port", "0", *shared, log=base / "web", environment=environment))
        anyio.run(web.ready)
        yield web


@pytest.mark.parametrize("name", TRANSCRIPTS)
async def test_our_server_does_what_the_transcript_says(played: Process, name: str) -> None:
    async with Target(played.url) as target:
        await target.look()
        result = await play(target, TRANSCRIPTS[name])
    assert (result.outcome, result.reasons) == ("passed", [])


async def test_a_server_without_a_tool_is_told_so_and_not_failed(server: Process) -> None:
    async with Target(server.url) as target:
        await target.look()
        result = await play(target, TRANSCRIPTS["client-tool-result"])
    assert (result.outcome, result.reasons) == ("skipped", ["the server does not offer: client_tool open_file"])


Damage = Callable[[list[JsonObject]], list[JsonObject]]


class Damaging(httpx2.AsyncBaseTransport):
    """The way to a real server, on which the events of live streams are damaged. Streams are told apart by their
    `Last-Event-ID` and `from`; a resumed one passes unharmed unless `also_resumed`."""

    def __init__(self, damage: Damage, *, also_resumed: bool = False) -> None:
        self._inner = httpx2.AsyncHTTPTransport()
        self._damage = damage
        self._also_resumed = also_resumed

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        response = await self._inner.handle_async_request(request)
        resumes = "last-event-id" in request.headers or "from" in request.url.params
        if "subscribe" not in request.url.path or (resumes and not self._also_resumed):
            return response
        stream = _Damaged(response, self._damage)
        return httpx2.Response(response.status_code, headers=response.headers, stream=stream)

    async def aclose(self) -> None:
        await self._inner.aclose()


LINES_BETWEEN = re.compile(r"\A(?:(?::|retry:).*\n)+")
"""Heartbeats and `retry`, which end no event."""


class _Damaged(httpx2.AsyncByteStream):
    def __init__(self, response: httpx2.Response, damage: Damage) -> None:
        self._response = response
        self._damage = damage

    async def __aiter__(self) -> AsyncIterator[bytes]:
        text = ""
        assert isinstance(self._response.stream, httpx2.AsyncByteStream)
        async for chunk in self._response.stream:
            *blocks, text = (text + chunk.decode()).split("\n\n")
            for block in (LINES_BETWEEN.sub("", block) for block in blocks):
                if block.startswith("data: "):
                    data, event_id = block.removeprefix("data: ").split("\n")
                    for event in self._damage([json.loads(data)]):
                        yield f"data: {json.dumps(event)}\n{event_id}\n\n".encode()

    async def aclose(self) -> None:
        await self._response.aclose()


def without(kind: str, *, renumbered: bool = False) -> Damage:
    """Every event of this type is lost; `renumbered`: and the numbers do not show it."""
    lost = 0

    def damage(events: list[JsonObject]) -> list[JsonObject]:
        nonlocal lost
        (event,) = events
        if event["type"] == kind:
            lost += 1
            return []
        return [{**event, "seq": str(int(event["seq"]) - lost)} if renumbered and event["seq"] != "0" else event]

    return damage


def twice(kind: str) -> Damage:
    """Every event of this type comes a second time, under a number of its own."""
    more = 0

    def damage(events: list[JsonObject]) -> list[JsonObject]:
        nonlocal more
        (event,) = events
        event = {**event, "seq": str(int(event["seq"]) + more)} if event["seq"] != "0" else event
        if event["type"] != kind:
            return [event]
        more += 1
        return [event, {**event, "seq": str(int(event["seq"]) + 1)}]

    return damage


def with_word(kind: str, **words: object) -> Damage:
    return lambda events: [{**event, **words} if event["type"] == kind else event for event in events]


async def result_of(url: str, name: str, damage: Damage, **options: bool) -> Result:
    async with Target(url, transport=Damaging(damage, **options)) as target:
        await target.look()
        return await play(target, TRANSCRIPTS[name], wait_seconds=2.0)


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (without("stream_delta"), "must follow"),
        (without("message_added", renumbered=True), "expected"),
        (without("ack", renumbered=True), "ack"),
        (twice("stream_delta"), "expected"),
        (twice("ack"), "expected"),
        (with_word("stream_delta", message_id="msg_elsewhere"), "which is not being written"),
        (with_word("stream_finished", finish_reason="length"), "finish_reason should be"),
        (with_word("queue_updated", queue_size="one"), "another shape"),
        (with_word("runtime_updated", outcome=None), "outcome"),
        (with_word("message_added", index=7), "index"),
        (without("snapshot"), "no snapshot"),
    ],
    ids=[
        "delta-lost",
        "message-lost",
        "ack-lost",
        "delta-twice",
        "ack-twice",
        "delta-elsewhere",
        "other-finish-reason",
        "wrong-type",
        "no-outcome",
        "wrong-index",
        "no-snapshot",
    ],
)
async def test_a_server_that_breaks_the_stream_is_found_out(server: Process, damage: Damage, words: str) -> None:
    result = await result_of(server.url, "plain-turn", damage)
    assert result.outcome == "failed"
    assert words in " ".join(result.reasons)


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (twice("ack"), "acks [True, True]"),
        (without("ack", renumbered=True), "has no ack"),
        (twice("message_added"), "answered 2 times"),
    ],
    ids=["ack-twice", "no-ack", "result-twice"],
)
async def test_the_law_holds_also_where_a_transcript_does_not_look(server: Process, damage: Damage, words: str) -> None:
    blind = Transcript(
        name="blind",
        about="It looks at nothing but the end.",
        model="demo/tools?rate=0",
        steps=TRANSCRIPTS["tool-call"].steps[:1],
        final={"chat": {"runtime": {"state": "idle", "outcome": "complete"}}},
    )
    async with Target(server.url, transport=Damaging(damage)) as target:
        await target.look()
        result = await play(target, blind, wait_seconds=2.0)
    assert result.outcome == "failed"
    assert words in " ".join(result.reasons)


async def test_a_server_that_resumes_with_a_hole_is_found_out(server: Process) -> None:
    has_ended = False

    def damage(events: list[JsonObject]) -> list[JsonObject]:
        nonlocal has_ended
        loses = has_ended and events[0]["type"] == "message_added"
        has_ended = has_ended or events[0].get("outcome") is not None
        return [] if loses else events

    result = await result_of(server.url, "plain-turn", damage, also_resumed=True)
    assert result.outcome == "failed"
    assert "resumed after" in " ".join(result.reasons)


async def test_the_command_prints_a_table_and_its_exit_code_tells(
    server: Process, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(*arguments: str) -> int:
        return main(["conformance", server.url, *arguments])

    run_in_thread = anyio.to_thread.run_sync
    assert await run_in_thread(lambda: run("--only", "plain-turn", "client-tool-result")) == 0
    printed = capsys.readouterr().out
    assert "ok    plain-turn" in printed and "skip  client-tool-result" in printed
    assert "1 passed, 0 failed, 1 skipped" in printed
    wrong = json.loads((transcripts_directory() / "plain-turn.json").read_text())
    wrong["final"]["chat"]["messages"][1]["content"] = "You said: goodbye"
    (tmp_path / "plain-turn.json").write_text(json.dumps(wrong))
    assert await run_in_thread(lambda: run("--transcripts", str(tmp_path), "--wait", "1", "--json")) == 1
    (failed,) = json.loads(capsys.readouterr().out)["results"]
    assert "/messages/1/content should be" in failed["reasons"][0]
    assert await run_in_thread(lambda: run("--only", "no-such")) == 2
    assert await run_in_thread(lambda: main(["conformance", "http://127.0.0.1:9"])) == 2
