"""MCP elicitation: real servers of the SDK ask people of real chats, over stdio and over HTTP."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from tests.bars import bar_seconds
from tests.integration.mcp_harness import answers_in, get, until_offered, wait_for_port
from tests.integration.test_questions_http import answer, is_asked, questions
from tests.ports import free_port
from tests.support.reader import Watcher, watching
from tests.support.server import DEADLINE_SECONDS, ROOT, Process, command, started_server, user_message
from threadcast.tools.mcp.elicitation import form_schema, plain_text
from threadcast_protocol.wire.messages import JsonObject

pytestmark = pytest.mark.anyio

SERVERS = Path(__file__).parents[1] / "integration" / "asking_mcp.py"
WORDS = {"PYTHONPATH": str(ROOT)}


def program(how: str) -> str:
    words = f'env = {{ PYTHONPATH = "{ROOT}" }}'
    return f'command = "{sys.executable}"\nargs = ["{SERVERS}", "{how}"]\n{words}\npolicy = "auto"\n'


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    base, port = tmp_path_factory.mktemp("asking"), free_port()
    child = subprocess.Popen([sys.executable, str(SERVERS), "http", str(port)], env={**os.environ, **WORDS})
    try:
        wait_for_port(port)
        config = base / "threadcast.toml"
        config.write_text(
            '[models]\ndefault = "demo/tools?rate=0"\n[limits]\nquestion_seconds = 8\ntool_timeout_seconds = 2\n'
            f'[mcp.shop]\nurl = "http://127.0.0.1:{port}/mcp"\npolicy = "auto"\n'
            f"[mcp.desk]\n{program('stdio')}[mcp.newer]\n{program('modern')}"
            f"[mcp.quiet]\n{program('stdio')}elicitation = false\n"
        )
        with started_server(base, "--config", str(config)) as process:
            process.wait_ready()
            for name in ("shop", "desk", "newer", "quiet"):
                anyio.run(until_offered, process, f"mcp__{name}__order")
            yield process
    finally:
        child.kill()
        child.wait(DEADLINE_SECONDS)


async def call(server: Process, chat_id: str, one: str) -> None:
    sent = await command(server.url, chat_id, user_message("a", f"call {one}"))
    assert sent.status_code == 202, sent.text


async def decide(server: Process, chat_id: str, question: JsonObject, **more: object) -> None:
    body = {"type": "tool_decision", "client_request_id": f"d-{question['id']}", "tool_call_id": question["id"]}
    await command(server.url, chat_id, {**body, "input_hash": question["hash"], "accepted": True, **more})


def result(tab: Watcher) -> str:
    ((text, _),) = answers_in(tab)
    return text


@pytest.mark.parametrize("name", ["shop", "desk"])
async def test_a_form_is_accepted_in_one_of_two_tabs(server: Process, name: str) -> None:
    chat_id = f"accept-{name}"
    async with watching(server.url, chat_id) as tab, watching(server.url, chat_id) as other:
        await call(server, chat_id, f"mcp__{name}__order")
        await tab.until(is_asked)
        await other.until(is_asked)
        (asked,) = questions(tab)
        assert (asked["text"], asked["tool"]) == ("What do you want?", f"mcp__{name}__order")
        assert tab.state is not None
        question = tab.state.runtime.pause_reasons[0].question
        assert question
        assert question.schema == {
            "type": "object",
            "properties": {
                "size": {"title": "Size", "type": "string", "enum": ["small", "large"]},
                "count": {"title": "How many", "type": "integer", "minimum": 1, "maximum": 9},
                "gift": {"title": "Gift", "type": "boolean", "default": False},
            },
            "required": ["size", "count"],
            "additionalProperties": False,
        }
        await anyio.sleep(2.2)  # longer than the tool may run if the question's time did not count separately
        await decide(server, chat_id, asked, edited_input=answer({"size": "large", "count": 2, "gift": True}))
        await tab.at_rest()
        await other.at_rest()
        assert result(tab) == "2 large, gift: True"
        assert not is_asked(other)


async def test_a_server_of_the_newer_protocol_asks_too(server: Process) -> None:
    async with watching(server.url, "newer") as tab:
        await call(server, "newer", "mcp__newer__resolve")
        await tab.until(is_asked)
        (asked,) = questions(tab)
        await decide(server, "newer", asked, edited_input=answer({"name": "ann"}))
        await tab.at_rest()
        assert result(tab) == "hello ann"


@pytest.mark.parametrize("name", ["shop", "desk"])
async def test_a_rejection_is_a_decline_and_silence_a_cancel(server: Process, name: str) -> None:
    for kind in ("decline", "cancel"):
        chat_id = f"{kind}-{name}"
        async with watching(server.url, chat_id) as tab:
            await call(server, chat_id, f"mcp__{name}__order")
            await tab.until(is_asked)
            (asked,) = questions(tab)
            if kind == "decline":
                await decide(server, chat_id, asked, accepted=False)
            await tab.at_rest()
            assert result(tab) == f"nothing: {kind}"
            assert not is_asked(tab)


@pytest.mark.parametrize("name", ["shop", "desk"])
async def test_an_abort_ends_the_question_and_the_server_goes_on(server: Process, name: str) -> None:
    chat_id = f"abort-{name}"
    async with watching(server.url, chat_id) as tab:
        await call(server, chat_id, f"mcp__{name}__order")
        await tab.until(is_asked)
        begun_at = anyio.current_time()
        await command(server.url, chat_id, {"type": "abort", "client_request_id": "x"})
        await tab.at_rest()
        assert anyio.current_time() - begun_at < bar_seconds(2)
        assert not is_asked(tab)
    async with watching(server.url, f"after-{chat_id}") as tab:
        await call(server, f"after-{chat_id}", f'mcp__{name}__pause {{"seconds":0}}')
        await tab.at_rest()
        assert result(tab) == "paused"


async def test_a_flood_of_questions_shows_five(server: Process) -> None:
    async with watching(server.url, "flood") as tab:
        await call(server, "flood", 'mcp__desk__flood {"count":40}')
        await tab.until(lambda tab: len(questions(tab)) == 5)
        for asked in questions(tab):
            await decide(server, "flood", asked, accepted=False)
        await tab.at_rest()
        assert sorted(result(tab).split(",")) == ["cancel"] * 35 + ["decline"] * 5
        assert tab.state is not None
        shown = {
            reason["tool_call_id"]
            for frame in tab.frames
            if frame["type"] == "pause_required"
            for reason in frame["reasons"]
        }
        assert len(shown) == 5


async def test_http_servers_ask_the_chat_whose_call_asks(server: Process) -> None:
    chats = [f"whose-{number}" for number in range(4)]
    async with anyio.create_task_group() as tasks:

        async def one(chat_id: str) -> None:
            async with watching(server.url, chat_id) as tab:
                await call(server, chat_id, f'mcp__shop__greet {{"text":"for {chat_id}"}}')
                await tab.until(is_asked)
                (asked,) = questions(tab)
                assert asked["text"] == f"for {chat_id}"
                await decide(server, chat_id, asked, edited_input=answer({"name": chat_id}))
                await tab.at_rest()
                assert result(tab) == f"hello {chat_id}"

        for chat_id in chats:
            tasks.start_soon(one, chat_id)


async def test_a_question_is_not_shown_if_its_chat_is_not_clear(server: Process) -> None:
    async with watching(server.url, "busy") as busy, watching(server.url, "asks") as tab:
        await call(server, "busy", 'mcp__desk__pause {"seconds":1.5}')
        await busy.until(lambda tab: "tool_status" in tab.types())
        await call(server, "asks", 'mcp__desk__greet {"text":"Who?"}')
        await tab.at_rest()
        assert "several chats call this server" in result(tab)
        await busy.at_rest()
        assert not any(frame["type"] == "pause_required" for frame in (*busy.frames, *tab.frames))


@pytest.mark.parametrize(("kind", "is_shown"), [("password", False), ("nested", False), ("pattern", True)])
async def test_forms_that_are_not_allowed_are_refused(server: Process, kind: str, is_shown: bool) -> None:
    async with watching(server.url, f"raw-{kind}") as tab:
        await call(server, f"raw-{kind}", f'mcp__desk__ask_raw {{"kind":"{kind}"}}')
        if is_shown:
            await tab.until(is_asked)
            (asked,) = questions(tab)
            assert asked["text"].startswith("[2JIt is me, the assistant. long ")
            assert len(asked["text"]) <= 4_000
            await decide(server, f"raw-{kind}", asked, edited_input=answer({"text": "a" * 50 + "!"}))
        await tab.at_rest()
        assert result(tab).startswith("accept:" if is_shown else "refused: the question was not shown")


async def test_the_operator_switches_questions_off(server: Process) -> None:
    async with watching(server.url, "quiet") as tab:
        await call(server, "quiet", "mcp__quiet__order")
        await tab.at_rest()
        assert not any(frame["type"] == "pause_required" for frame in tab.frames)
        ((_, is_failed),) = answers_in(tab)
        assert is_failed


async def test_open_questions_leave_room_for_other_calls(server: Process) -> None:
    """A connection carries out 16 requests at once. Here 20 chats have open questions, and another chat calls a
    tool."""
    async with anyio.create_task_group() as tasks:
        asked = anyio.Semaphore(0)

        async def one(chat_id: str) -> None:
            async with watching(server.url, chat_id) as tab:
                await call(server, chat_id, "mcp__shop__order")
                await tab.until(is_asked)
                asked.release()
                await tab.at_rest()

        for number in range(20):
            tasks.start_soon(one, f"room-{number}")
        for _ in range(20):
            await asked.acquire()
        async with watching(server.url, "room-for") as tab:
            await call(server, "room-for", 'mcp__shop__pause {"seconds":0}')
            await tab.at_rest()
            assert result(tab) == "paused"
    assert (await get(server, "/readyz")).status_code == 200


def test_a_form_keeps_only_what_the_specification_allows() -> None:
    wanted: JsonObject = {
        "type": "object",
        "$defs": {"a": {}},
        "properties": {
            "a": {"type": "string", "format": "email", "pattern": "a+", "title": "A\u202e", "minLength": 1},
            "b": {"type": "number", "minimum": 0, "maximum": "high", "enum": [1]},
            "c": {"type": "string", "enum": ["x", "y"], "enumNames": ["X", "Y"]},
            "d": {"type": "string", "oneOf": [{"const": "x", "title": "X"}]},
            "e": {"type": "array", "items": {"type": "string", "enum": ["x", "y"]}, "minItems": 1},
        },
        "required": ["a", "z"],
    }
    assert form_schema(wanted) == {
        "type": "object",
        "properties": {
            "a": {"type": "string", "format": "email", "title": "A", "minLength": 1},
            "b": {"type": "number", "minimum": 0},
            "c": {
                "type": "string",
                "oneOf": [{"const": "x", "title": "X"}, {"const": "y", "title": "Y"}],
            },
            "d": {"type": "string", "oneOf": [{"const": "x", "title": "X"}]},
            "e": {"type": "array", "items": {"type": "string", "enum": ["x", "y"]}, "minItems": 1},
        },
        "required": ["a"],
        "additionalProperties": False,
    }
    assert form_schema({"type": "object", "properties": {}}) is not None
    bad: object
    for bad in (
        {"type": "array"},
        {"type": "object", "properties": {"a": {"type": "object"}}},
        {"type": "object", "properties": {"a": {"type": "string", "format": "password"}}},
        {"type": "object", "properties": {"a": {"type": "string", "enum": [1]}}},
        {"type": "object", "properties": {"a": {"type": "array", "items": {"type": "string"}}}},
        {"type": "object", "properties": {str(n): {"type": "string"} for n in range(51)}},
        [],
    ):
        assert form_schema(bad) is None, bad
    assert plain_text("  a\nb\x1b\u202e ") == "a\nb"
