"""Checks the limits on a remote agent behind AG-UI: on its stream, its silence, and the events of one run."""

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from types import SimpleNamespace
from typing import cast

import httpx2
import pytest
from ag_ui.core import (
    BaseEvent,
    Interrupt,
    RunFinishedEvent,
    RunFinishedInterruptOutcome,
    StateDeltaEvent,
    StateSnapshotEvent,
    TextMessageChunkEvent,
    ToolCallChunkEvent,
)

from tests.ports import free_port
from tests.support.server import DEADLINE_SECONDS
from threadcast.agents.ag_ui import client
from threadcast.agents.ag_ui.client import ATTEMPTS, EVENT_MAX_BYTES, STREAM_MAX_BYTES, RemoteAgent
from threadcast.agents.ag_ui.events import Event, event_of
from threadcast.agents.ag_ui.history import Conversation
from threadcast.agents.ag_ui.state import STATE_MAX_BYTES
from threadcast.agents.ag_ui.stream import (
    CALLS_MAX,
    INTERRUPTS_MAX,
    MESSAGES_MAX,
    TOLD_MAX_BYTES,
    RunDone,
    RunStream,
)
from threadcast.custom_agents.pieces import Call, Data
from threadcast.custom_agents.seam import Seam, ShownCall, ShownMessage
from threadcast_protocol.wire.errors import ModelFailed

pytestmark = [pytest.mark.anyio, pytest.mark.row("AGT-10")]


class CountingSeam:
    """A seam in memory that counts its calls."""

    def __init__(self) -> None:
        self.messages = self.calls = self.bytes = 0

    async def message(self, key: str, pieces: Callable[[], AsyncIterable[object]]) -> ShownMessage:
        self.messages += 1
        found = [piece async for piece in pieces()]
        calls = [ShownCall(f"{key}-call", piece.id or "", piece.name, "{}") for piece in found if type(piece) is Call]
        self.calls += len(calls)
        return ShownMessage(key, "", calls, None)

    async def emit(self, data: Data) -> None:
        self.bytes += len(str(data.data))

    async def declare(self, tools: object) -> None: ...

    async def begin_call(self, call_id: str) -> None: ...


async def show(seam: CountingSeam, sent: Iterable[BaseEvent], deep: str = "") -> RunDone:
    """Show a run that sends these events of the protocol's own types; the JSON `deep` replaces the text "DEEP" in
    them."""

    async def events() -> AsyncIterator[list[Event]]:
        for each in sent:
            data = each.model_dump_json(by_alias=True, exclude_none=True).replace('"DEEP"', deep)
            event = event_of(data.encode())
            assert event is not None
            yield [event]

    return await RunStream(cast(Seam, seam), "run-1", events(), Conversation(), {}, (), {}).show()


def ended(interrupts: int = 0) -> RunFinishedEvent:
    asked = [Interrupt(id=f"i{number}", reason="input") for number in range(interrupts)]
    outcome = RunFinishedInterruptOutcome(interrupts=asked) if asked else None
    return RunFinishedEvent(thread_id="c", run_id="r", outcome=outcome)


def texts(count: int) -> list[BaseEvent]:
    return [TextMessageChunkEvent(message_id=f"m{number}", role="assistant", delta="x") for number in range(count)]


def calls(count: int, one_id: str = "") -> list[BaseEvent]:
    """Return calls, alternating with texts if all calls have one id."""
    found: list[BaseEvent] = []
    for number in range(count):
        found.append(ToolCallChunkEvent(tool_call_id=one_id or f"c{number}", tool_call_name="look", delta="{}"))
        found += texts(1) if one_id else []
    return found


async def refused(seam: CountingSeam, sent: list[BaseEvent], deep: str = "") -> ModelFailed:
    with pytest.raises(ModelFailed) as raised:
        await show(seam, [*sent, ended()], deep)
    return raised.value


async def test_a_run_has_so_many_messages() -> None:
    await show(CountingSeam(), [*texts(MESSAGES_MAX), ended()])
    seam = CountingSeam()
    failed = await refused(seam, texts(MESSAGES_MAX + 1))
    assert (failed.code, seam.messages) == ("limit", MESSAGES_MAX)
    assert "messages" in str(failed)


@pytest.mark.parametrize("one_id", ["", "same"])
async def test_a_run_makes_so_many_calls_even_if_all_have_one_id(one_id: str) -> None:
    await show(CountingSeam(), [*calls(CALLS_MAX, one_id)[: CALLS_MAX * 2 - 1], ended()])
    seam = CountingSeam()
    failed = await refused(seam, calls(CALLS_MAX + 1, one_id))
    assert (failed.code, seam.calls) == ("limit", CALLS_MAX)


async def test_a_run_waits_for_so_many_answers() -> None:
    assert len((await show(CountingSeam(), [ended(INTERRUPTS_MAX)])).interrupts) == INTERRUPTS_MAX
    with pytest.raises(ModelFailed, match="more than 100 answers"):
        await show(CountingSeam(), [ended(INTERRUPTS_MAX + 1)])


async def test_small_changes_of_a_large_state_tell_so_many_bytes() -> None:
    large = {"text": "x" * (STATE_MAX_BYTES - 100), "n": 0}
    change = StateDeltaEvent.model_validate({"delta": [{"op": "replace", "path": "/n", "value": 1}]})
    seam = CountingSeam()
    failed = await refused(seam, [StateSnapshotEvent(snapshot=large), *[change] * 2_200])
    assert failed.code == "limit"
    assert TOLD_MAX_BYTES * 0.99 < seam.bytes < TOLD_MAX_BYTES * 1.01


async def test_a_state_too_deep_to_copy_ends_the_run() -> None:
    copy = StateDeltaEvent.model_validate({"delta": [{"op": "copy", "from": "/a", "path": "/b"}]})
    snapshot = StateSnapshotEvent(snapshot={"a": "DEEP"})
    failed = await refused(CountingSeam(), [snapshot, copy], deep="[" * 600 + "]" * 600)
    assert failed.code == "llm_error"
    assert "does not fit the agent's state" in str(failed)


async def read(*pieces: bytes) -> list[Event]:
    async def body() -> AsyncIterator[bytes]:
        for piece in pieces:
            yield piece

    return [event async for events in client._events(httpx2.Response(200, content=body())) for event in events]


async def test_an_event_and_a_stream_have_a_largest_size() -> None:
    with pytest.raises(ModelFailed, match=f"an event of more than {EVENT_MAX_BYTES:,} bytes"):
        await read(b"data: ", b"x" * (EVENT_MAX_BYTES + 1))
    comment = b": " + b"x" * 1_048_573 + b"\n"
    assert await read(*[comment] * 64) == []
    with pytest.raises(ModelFailed, match=f"more than {STREAM_MAX_BYTES:,} bytes"):
        await read(*[comment] * 65)


async def test_an_event_too_deep_to_read_is_refused() -> None:
    with pytest.raises(ModelFailed, match="no event of AG-UI"):
        await read(b'data: {"type":"CUSTOM","value":' + b"[" * 100_000 + b"\n\n")


@asynccontextmanager
async def answering(answer: bytes, seen: list[bytes], *, is_cut: bool = False) -> AsyncIterator[str]:
    """Listen, answer each request with these bytes, and then stay silent or close."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(answer)
        await writer.drain()
        if not is_cut:
            await reader.read(1 << 20)
            await reader.read()  # until the client closes
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()
        handled.set()

    handled = asyncio.Event()
    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
        await asyncio.wait_for(handled.wait(), DEADLINE_SECONDS)


HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    ("answer", "is_cut", "code"),
    [(b"", False, "timeout"), (HEAD, False, "timeout"), (HEAD, True, "stream_error"), (b"", True, "stream_error")],
)
async def test_an_agent_that_may_have_begun_is_not_asked_again(answer: bytes, is_cut: bool, code: str) -> None:
    seen: list[bytes] = []
    async with answering(answer, seen, is_cut=is_cut) as url:
        with pytest.raises(ModelFailed) as raised:
            async with RemoteAgent(url, {}, 0.2).run({}):
                pass
    assert (raised.value.code, len(seen)) == (code, 1)


async def test_an_agent_that_cannot_be_reached_is_asked_so_often(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []

    async def slept(seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr(client, "asyncio", SimpleNamespace(sleep=slept))
    with pytest.raises(ModelFailed) as raised:
        async with RemoteAgent(f"http://127.0.0.1:{free_port()}/", {}, 5.0).run({}):
            pass
    assert (raised.value.code, pauses) == ("connection", list(client.PAUSES_SECONDS))
    assert len(pauses) == ATTEMPTS - 1
