"""An open stream ends its own task when its connection ends, and cancels nothing else."""

import asyncio
import gc
import weakref
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any, cast

import anyio
import pytest

from tests.unit.faulty_store import DEADLINE_SECONDS
from threadcast.api.edge import Edge
from threadcast.api.opening import OpenStream
from threadcast.api.stream import KEPT_QUERIES, KEPT_QUERY_BYTES, _kept_wish, _wish_of
from threadcast.base.telemetry import Metrics
from threadcast.fanout.connection import ReaderConnection
from threadcast_protocol.wire.errors import BadRequest

pytestmark = pytest.mark.anyio


class StandIn:
    """A connection, which refers to its stream as real ones do."""

    ended = None

    def __init__(self, tasks: OpenStream) -> None:
        self.tasks = tasks

    def close(self) -> None: ...


def open_stream() -> OpenStream:
    """Return a stream whose hub has no tasks, as while the process ends."""
    hub = SimpleNamespace(tasks=None, kept_alive=lambda _: nullcontext())
    edge = SimpleNamespace(hub=hub, metrics=Metrics())
    stream = OpenStream(cast(Edge, edge), {})  # cast: the object has the attributes that are used
    stream.connection = cast(ReaderConnection, StandIn(stream))
    return stream


async def waits(stream: OpenStream) -> str:
    """Wait in the stream until it is cancelled, and then for a moment more."""
    with anyio.fail_after(DEADLINE_SECONDS):
        with stream:
            await asyncio.get_running_loop().create_future()
        for _ in range(5):
            await asyncio.sleep(0)
    return "went on"


async def test_cancelling_ends_the_block_alone_as_often_as_it_is_called() -> None:
    stream = open_stream()
    waiting = asyncio.create_task(waits(stream))
    await asyncio.sleep(0)
    for _ in range(3):
        stream.cancel_scope.cancel()
        await asyncio.sleep(0)
    assert await waiting == "went on"
    assert await asyncio.create_task(went_on_after(stream)) == "went on"


async def went_on_after(stream: OpenStream) -> str:
    stream.cancel()  # its block is over
    for _ in range(5):
        await asyncio.sleep(0)
    return "went on"


async def test_a_block_may_cancel_itself_and_its_next_wait_ends() -> None:
    stream = open_stream()
    reached = False
    with anyio.fail_after(DEADLINE_SECONDS), stream:
        stream.start_soon(anyio.sleep_forever)  # no task can be started: the process is ending
        await anyio.sleep_forever()
        reached = True
    assert not reached


async def test_a_block_that_cancels_itself_as_its_last_act_cancels_nothing_after_it() -> None:
    stream = open_stream()
    with stream:
        stream.cancel()
    for _ in range(5):
        await asyncio.sleep(0)
    task = asyncio.current_task()
    assert task is not None
    assert not task.cancelling()


async def test_a_task_that_somebody_else_cancels_too_is_cancelled() -> None:
    stream = open_stream()
    waiting = asyncio.create_task(waits(stream))
    await asyncio.sleep(0)
    stream.cancel()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    other = asyncio.create_task(waits(open_stream()))
    await asyncio.sleep(0)
    other.cancel()
    with pytest.raises(asyncio.CancelledError):
        await other


async def test_an_error_of_the_block_is_raised_although_the_stream_was_cancelled() -> None:
    stream = open_stream()

    async def fails() -> None:
        with stream:
            try:
                await asyncio.get_running_loop().create_future()
            finally:
                raise ZeroDivisionError

    failing = asyncio.create_task(fails())
    await asyncio.sleep(0)
    stream.cancel()
    with pytest.raises(ZeroDivisionError):
        await failing


async def test_an_ended_stream_needs_no_garbage_collector() -> None:
    stream = open_stream()
    ended = weakref.ref(stream.connection)
    gc.disable()
    try:
        with stream:
            pass
        assert ended() is None
    finally:
        gc.enable()


def scope_of(query: bytes, **headers: str) -> dict[str, Any]:  # Any: the type of ASGI
    sent = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return {"query_string": query, "headers": sent}


def test_readers_with_the_same_query_have_positions_of_their_own() -> None:
    query = b"chat_id=a&chat_id=b&from=1-2-3"
    assert _wish_of(scope_of(query)).stream_position == "1-2-3"
    assert _wish_of(scope_of(query, last_event_id="4-5-6")).stream_position == "4-5-6"
    again = _wish_of(scope_of(query))
    assert again.stream_position == "1-2-3"
    assert again.chat_ids == ("a", "b")


@pytest.mark.parametrize("query", [b"", b"chat_id=%20", b"stream_id=%20", b"&" * 201, b"&".join([b"a=1"] * 201)])
def test_a_query_that_is_refused_is_refused_every_time(query: bytes) -> None:
    for _ in range(3):
        with pytest.raises(BadRequest):
            _wish_of(scope_of(query))


def test_the_queries_that_are_kept_have_a_bound_and_long_ones_are_not_kept() -> None:
    for number in range(KEPT_QUERIES + 10):
        _wish_of(scope_of(b"chat_id=c%d" % number))
    before = _kept_wish.cache_info()
    assert before.currsize == KEPT_QUERIES
    assert _wish_of(scope_of(b"chat_id=c1&other=" + b"x" * KEPT_QUERY_BYTES)).chat_ids == ("c1",)
    assert _kept_wish.cache_info() == before
