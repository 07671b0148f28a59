"""A deadline that checks for data before it expires; on both event loops, over real sockets, with a blocked loop."""

import asyncio
import socket
import threading
import time

import anyio
import pytest

from tests.unit.tool_desk import Desk, made
from threadcast.base.deadlines import Deadline
from threadcast.tools.base import ToolResult

pytestmark = pytest.mark.anyio


@pytest.fixture(
    params=[("asyncio", {"use_uvloop": True}), ("asyncio", {"use_uvloop": False})], ids=["uvloop", "asyncio"]
)
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, bool]]:
    backend: tuple[str, dict[str, bool]] = request.param
    return backend


def stand_still(far: socket.socket, seconds: float) -> None:
    """Block the event loop, as in a stopped process, while an answer arrives."""
    threading.Thread(target=far.sendall, args=(b"here",)).start()
    time.sleep(seconds)


async def answered(loop_stands_seconds: float) -> bytes:
    near, far = socket.socketpair()
    with near, far:
        reader, writer = await asyncio.open_connection(sock=near)
        asyncio.get_running_loop().call_later(0.05, stand_still, far, loop_stands_seconds)
        async with Deadline(0.2):
            said = await reader.readexactly(4)
        writer.close()
        return said


async def test_what_came_while_the_loop_stood_still_is_read_before_silence_is_judged() -> None:
    assert await answered(0.6) == b"here"


async def test_silence_ends_it_and_a_block_that_is_through_in_time_is_left_alone() -> None:
    with anyio.fail_after(20):
        with pytest.raises(TimeoutError):
            async with Deadline(0.05):
                await asyncio.Event().wait()
        async with Deadline(0.05):
            pass
        await asyncio.sleep(0.3)


async def test_more_time_can_be_given_while_it_runs() -> None:
    async with Deadline(0.01) as deadline:
        deadline.allow(60)
        await asyncio.sleep(0.3)
    with anyio.fail_after(20), pytest.raises(TimeoutError):
        async with Deadline(60) as deadline:
            deadline.allow(0.01)
            deadline._look()
            await asyncio.Event().wait()


async def test_a_cancellation_from_outside_passes() -> None:
    with anyio.move_on_after(0.05) as scope:
        async with Deadline(60):
            await asyncio.Event().wait()
    assert scope.cancelled_caught


async def test_a_tools_answer_that_lies_in_its_socket_is_its_answer() -> None:
    near, far = socket.socketpair()
    with near, far:
        reader, writer = await asyncio.open_connection(sock=near)

        async def ask() -> ToolResult:
            asyncio.get_running_loop().call_later(0.05, stand_still, far, 0.6)
            return ToolResult(content=(await reader.readexactly(4)).decode())

        assert (await Desk().run(made(ask, timeout_seconds=0.2))).result.content == "here"
        writer.close()


async def test_what_makes_progress_is_given_the_same_time_again_until_it_stops() -> None:
    pieces = 0
    loop = asyncio.get_running_loop()
    began = loop.time()
    with anyio.fail_after(20):
        with pytest.raises(TimeoutError):
            async with Deadline(0.05, lambda: pieces):
                for _ in range(40):
                    await asyncio.sleep(0.02)
                    pieces += 1
                await asyncio.Event().wait()
    assert pieces == 40 and loop.time() - began > 0.8
