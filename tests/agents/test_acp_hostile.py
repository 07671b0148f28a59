"""Checks that the server limits the memory and the rate of a hostile agent behind ACP, and that such an agent cannot
use a permission for another call."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.agents.test_acp_http import USER, answered, paused, texts
from tests.integration.test_durable_agents_http import asked, decide, error_of
from tests.support.server import DEADLINE_SECONDS, Process, start
from threadcast.agents.acp import child as child_module
from threadcast.agents.acp import connection as connection_module
from threadcast.agents.acp.child import Child
from threadcast.agents.acp.children import Children, Program
from threadcast.agents.acp.connection import BUSY, REQUESTS_MAX, Connection
from threadcast.agents.acp.session import Session
from threadcast.custom_agents.rounds import RoundMessage
from threadcast.tools.mcp.traffic import Throttle
from threadcast_protocol.wire.errors import ModelFailed
from threadcast_protocol.wire.messages import JsonObject

pytestmark = [pytest.mark.anyio, pytest.mark.row("AGT-9")]

AGENT = Path(__file__).with_name("acp_hostile.py")

TURNS = 200
"""The number of turns of the event loop within which code that does not apply the limit would exceed it."""

WRITE = """
import json, os, pathlib, sys, time
def write(method, number=None, **params):
    message = {"jsonrpc": "2.0", "method": method, "params": params} | ({} if number is None else {"id": number})
    print(json.dumps(message), flush=True)
def read():
    return json.loads(sys.stdin.readline())
"""


# calls and permissions, over HTTP


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    directory = tmp_path_factory.mktemp("hostile")
    config = directory / "threadcast.toml"
    line = json.dumps([sys.executable, str(AGENT), str(directory)])
    config.write_text(
        f'[server]\nprograms_user = "{USER}"\n[agents.coder]\nkind = "acp"\ncommand = {line}\n'
        f'workspace = "{directory}/workspaces"\npolicies = {{ read = "auto" }}\n'
    )
    with start("serve", "--port", "0", "--memory", "--config", str(config), log=directory / "log") as process:
        yield process.wait_ready()


async def test_a_permission_holds_for_the_call_that_people_see(server: Process) -> None:
    async with asked(server, "coder", "swap") as (chat_id, watcher):
        [reason] = await paused(watcher)
        assert (reason.tool_name, reason.input["input"]) == ("coder_delete", {"command": "rm"})
        await decide(server, chat_id, reason, False)
        await watcher.at_rest()
    assert texts(watcher) == ["swapped: no"]


async def test_a_permission_for_a_call_with_a_result_is_about_a_further_call(server: Process) -> None:
    watcher = await answered(server, "answered")
    assert texts(watcher) == ["again: yes"]
    assert watcher.state is not None
    calls = [call.id for node in watcher.state.nodes.values() for call in node.tool_calls or ()]
    assert len(set(calls)) == 2


async def test_open_calls_hold_so_many_bytes_and_closed_ones_none(server: Process) -> None:
    assert error_of(await answered(server, "open-calls")).message == (
        "The agent's open calls have more than 33,554,432 bytes."
    )
    assert texts(await answered(server, "closed-calls")) == ["all told"]


# requests


@asynccontextmanager
async def connected(
    directory: Path, code: str, on_request: Callable[[str, Any], Awaitable[JsonObject]]
) -> AsyncIterator[tuple[Child, asyncio.Queue[Any]]]:
    """Run a Python program; yields the program and the params of its updates."""
    updates: asyncio.Queue[Any] = asyncio.Queue()
    child = await started(directory, code)

    async def on_update(params: Any, size: int) -> None:
        updates.put_nowait(params)

    connection = Connection(child, on_request, on_update)
    try:
        async with asyncio.timeout(DEADLINE_SECONDS):
            yield child, updates
    finally:
        await connection.close()


async def started(directory: Path, code: str) -> Child:
    return await Child.start("raw", [sys.executable, "-c", WRITE + code], cwd=str(directory), env={}, user=None)


async def never(method: str, params: Any) -> JsonObject:
    await asyncio.Event().wait()
    return {}


async def test_so_many_requests_and_bytes_are_worked_on_and_further_ones_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = "for number in range(70): write('x', number)\nwrite('session/update', refused=[read() for _ in range(6)])"
    async with connected(tmp_path, f"{code}\nread()", never) as (_, updates):
        refused = (await updates.get())["refused"]
    assert [each["id"] for each in refused] == list(range(REQUESTS_MAX, 70))
    assert {each["error"]["code"] for each in refused} == {BUSY}
    monkeypatch.setattr(connection_module, "REQUESTS_MAX_BYTES", 2_500_000)
    code = "for number in range(3): write('x', number, text='x' * 1_000_000)\nwrite('session/update', refused=read())"
    async with connected(tmp_path, f"{code}\nread()", never) as (_, updates):
        assert (await updates.get())["refused"]["id"] == 2


async def test_an_agent_that_takes_no_answers_is_not_read_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child_module, "LINES_PER_SECOND", 1e9)

    async with connected(tmp_path, "while True: write('x', 1)", never) as (child, _):
        assert child._process.stdin is not None
        size = child._process.stdin.transport.get_write_buffer_size
        while size() < 65_536:
            await asyncio.sleep(0.001)
        for _ in range(TURNS):
            await asyncio.sleep(0.001)
        assert size() < 70_000


async def test_files_are_read_one_after_the_other_as_the_agent_takes_them(tmp_path: Path) -> None:
    begun: list[str] = []

    async def on_request(method: str, params: Any) -> JsonObject:
        begun.append(method)
        return {"content": "x" * 1_000_000}

    code = """
for number in range(5): write('fs/read_text_file', number)
write('session/update', step='asked')
while not pathlib.Path('go').exists(): time.sleep(0.01)
write('session/update', taken=[read()['id'] for _ in range(5)])
read()"""
    async with connected(tmp_path, code, on_request) as (_, updates):
        assert await updates.get() == {"step": "asked"}
        for _ in range(TURNS):
            await asyncio.sleep(0)
        assert len(begun) == 1
        (tmp_path / "go").touch()
        assert await updates.get() == {"taken": [0, 1, 2, 3, 4]}


# pace


async def first_line_seconds(child: Child) -> float:
    begun_at = asyncio.get_running_loop().time()
    try:
        async with asyncio.timeout(DEADLINE_SECONDS), aclosing(child.read()) as lines:  # type: ignore[type-var]
            async for _ in lines:
                return asyncio.get_running_loop().time() - begun_at
    finally:
        await child.stop()
    raise AssertionError("there was no line")


async def test_empty_lines_count_in_the_pace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child_module, "LINES_PER_SECOND", 1_000.0)
    child = await started(tmp_path, "print('\\n' * 500 + 'x', flush=True)\nread()")
    child._pace = Throttle(0.0)
    assert await first_line_seconds(child) > 0.4


async def test_the_error_output_has_a_pace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child_module, "BYTES_PER_SECOND", 4e6)
    child = await started(tmp_path, "sys.stderr.write('x' * 2_000_000)\nprint('x', flush=True)\nread()")
    child._error_pace = Throttle(0.0)
    assert await first_line_seconds(child) > 0.3, "1.7 MB were taken; the rest is in pipes"


# sessions


def program(directory: Path, *more: str) -> Children:
    line = [sys.executable, str(AGENT), str(directory), *more]
    return Children(Program(name="coder", command=line, workspace=directory / "work"))


def said(*texts: str) -> list[RoundMessage]:
    return [RoundMessage(role="user", content=text, message_id=f"m{number}") for number, text in enumerate(texts)]


async def read_all(session: Session) -> int:
    count = 0
    while await session.next_event(DEADLINE_SECONDS) is not None:
        count += 1
    session.ended()
    return count


async def test_large_updates_wait_in_the_pipe_of_the_agent(tmp_path: Path) -> None:
    session, blocks = await program(tmp_path).take("chat", said("large-updates"))
    try:
        session.prompt(blocks)
        async with asyncio.timeout(DEADLINE_SECONDS):
            while session._events.empty():
                await asyncio.sleep(0.001)
        for _ in range(TURNS):
            await asyncio.sleep(0.001)
        assert session._events.qsize() == 1
        assert await read_all(session) == 21
    finally:
        await session.close()


async def test_an_idle_agent_holds_one_timer_however_many_prompts_it_had(tmp_path: Path) -> None:
    children = program(tmp_path)
    words: list[str] = []
    timers: list[asyncio.TimerHandle] = []
    for _ in range(3):
        words.append("hello")
        session, blocks = await children.take("chat", said(*words))
        session.prompt(blocks)
        await read_all(session)
        children.give_back("chat", session, is_usable=True)
        timers.append(children._idle["chat"][0])
    assert [each.cancelled() for each in timers] == [True, True, False]
    assert not children._tasks
    children._end_idle("chat")
    async with asyncio.timeout(DEADLINE_SECONDS):
        while children._tasks:
            await asyncio.sleep(0.01)
    assert session.broken


async def test_the_id_of_a_session_has_a_longest_length(tmp_path: Path) -> None:
    with pytest.raises(ModelFailed, match="more than 1,000 characters"):
        await program(tmp_path, "--long-id").take("chat", said("hello"))
