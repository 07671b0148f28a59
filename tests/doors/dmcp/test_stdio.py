"""`threadcast mcp`, started by the published client over stdio and connected to a running server."""

import sys
import traceback
from collections.abc import Iterator
from typing import Any

import anyio
import pytest
from mcp import Client, StdioServerParameters

from tests.doors.dmcp.clients import Mode, Person, result_of
from tests.ports import free_port
from tests.support.reader import watching
from tests.support.server import DEADLINE_SECONDS, ROOT, Process, command, started_server, user_message

pytestmark = pytest.mark.anyio

CALCULATE = 'call calculator {"expression": "6*7"}'


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    config = '[models]\ndefault = "demo/tools"\n[tools.calculator]\npolicy = "ask"\n'
    with started_server(tmp_path_factory.mktemp("stdio"), config=config) as process:
        yield process.wait_ready()


@pytest.fixture(params=["legacy", "auto"])
def mode(request: pytest.FixtureRequest) -> Any:
    return request.param


def opened(url: str, mode: Mode, person: Person | None = None, **more: Any) -> Client:
    program = StdioServerParameters(
        command=sys.executable, args=["-m", "threadcast.cli", "mcp", "--url", url], env={"PYTHONPATH": str(ROOT)}
    )
    return Client(program, mode=mode, elicitation_callback=person, cache=None, **more)


async def test_a_client_asks_approves_and_stops(server: Process, mode: Mode) -> None:
    person = Person(approved=True)
    async with opened(server.url, mode, person) as client:
        assert client.protocol_version == ("2025-11-25" if mode == "legacy" else "2026-07-28")
        told = await result_of(client, "ask", text=CALCULATE)
        assert "42" in told["text"] and len(person.asked) == 1
        line_ends = "a\u2028b\u0085c\r\nd"
        told = await result_of(client, "ask", text=line_ends, model="demo/echo")
        assert told["text"] == f"You said: {line_ends}"
        chat_id = f"stopped-{mode}"
        async with watching(server.url, chat_id) as watcher:
            async with anyio.create_task_group() as tasks:

                async def ask() -> None:
                    asked = {"text": "x", "chat_id": chat_id, "model": "demo/hang?after=2&rate=0"}
                    await client.call_tool("ask", asked)

                tasks.start_soon(ask)
                await watcher.until(lambda w: "stream_delta" in w.types())
                tasks.cancel_scope.cancel()
            await watcher.at_rest()
            assert watcher.state is not None
            assert watcher.state.runtime.outcome == "aborted"


@pytest.mark.filterwarnings("ignore:resources/.*subscribe is removed")
async def test_changes_of_a_chat_are_told(server: Process) -> None:
    await command(server.url, "watched", user_message("a", "hello"))
    uri = "threadcast://chats/watched"
    told = anyio.Event()

    async def on_message(message: Any) -> None:
        if uri in str(message):
            told.set()

    async with opened(server.url, "legacy", message_handler=on_message) as client:
        await client.subscribe_resource(uri)
        await command(server.url, "watched", user_message("b", "more"))
        with anyio.fail_after(DEADLINE_SECONDS):
            await told.wait()


async def test_a_server_that_does_not_run_is_named() -> None:
    url = f"http://127.0.0.1:{free_port()}"
    with pytest.raises(ExceptionGroup) as failed:
        async with opened(url, "legacy"):
            pass
    told = "".join(traceback.format_exception(failed.value))
    assert "does not answer" in told and "start it with `threadcast serve`" in told
