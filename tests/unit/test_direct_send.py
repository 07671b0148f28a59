"""Direct writes to a reader's socket, over real connections: they keep their order with `send`, never wait, and never
reach another connection."""

import asyncio
import gc
import os
import select
import socket
import weakref
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

import anyio
import anyio.lowlevel
import pytest
from starlette.types import Receive, Scope, Send

from tests.unit.faulty_store import DEADLINE_SECONDS
from threadcast.base.telemetry import Metrics
from threadcast.fanout.connection import Put, put_nothing
from threadcast.http.admission import Connections
from threadcast.http.direct_send import DirectSend
from threadcast.http.extensions import ABORT, BEGIN_DIRECT
from threadcast.http.server import serving
from threadcast.http.sockets import SEND_BUFFER_BYTES, listening
from threadcast.http.wide_buffers import WIDE_MAX_BYTES, WideBuffers
from threadcast.settings.limits import Limits

pytestmark = pytest.mark.anyio


@pytest.fixture(
    params=[("asyncio", {"use_uvloop": True}), ("asyncio", {"use_uvloop": False})], ids=["uvloop", "asyncio"]
)
def anyio_backend(request: pytest.FixtureRequest) -> object:
    """Both event loops are tested, because their transports differ. The product runs on uvloop if it is installed."""
    return request.param


STALL_SECONDS = 60.0


class Answer:
    """A request whose answer has begun with the head of a stream."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, large: DirectSend | None) -> None:
        self.scope = scope
        self.receive = receive
        self._send = send
        self.large = large
        self.put: Put = put_nothing if large is None else large.put
        self.abort: Callable[[], None] = scope["extensions"][ABORT]
        self.is_done = anyio.Event()

    async def send(self, body: bytes, *, more: bool = True) -> None:
        with anyio.fail_after(DEADLINE_SECONDS):
            await self._send({"type": "http.response.body", "body": body, "more_body": more})


@asynccontextmanager
async def answered(
    method: str = "GET", first: bytes = b"", wide_buffers: WideBuffers | None = None, body_bytes: int = 0
) -> AsyncIterator[tuple[Answer, socket.socket]]:
    """Yield an answer that has begun, and its reader's socket. The block `first` is put in the same turn of the loop as
    the head. Without `wide_buffers`, all send buffers stay small. A body of `body_bytes` is announced and never
    sent."""
    answers: list[Answer] = []
    begun = anyio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        start = {"type": "http.response.start", "status": 200, "headers": []}
        large = await scope["extensions"][BEGIN_DIRECT](send, start)
        if large is not None and first:
            assert not select.select([reader], [], [], 0)[0], "the head was sent without the block"
            assert large.put(first)
        answers.append(Answer(scope, receive, send, large))
        begun.set()
        await answers[0].is_done.wait()

    with listening("127.0.0.1", 0) as listener, socket.socket() as reader, anyio.fail_after(DEADLINE_SECONDS):
        connections = Connections(Limits(), 10, Metrics())
        connections.wide_buffers = wide_buffers or WideBuffers(STALL_SECONDS, 0)
        async with serving(listener, app, connections):
            # A tiny receive buffer makes the kernel cut blocks into tiny segments, which take more of a send buffer.
            reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536 if wide_buffers else 4_096)
            reader.setblocking(False)
            loop = asyncio.get_running_loop()
            await loop.sock_connect(reader, listener.getsockname())
            length = b"content-length: %d\r\n" % body_bytes if body_bytes else b""
            await loop.sock_sendall(reader, b"%b / HTTP/1.1\r\nhost: x\r\n%b\r\n" % (method.encode(), length))
            await begun.wait()
            try:
                yield answers[0], reader
            finally:
                answers[0].is_done.set()
                reader.close()


async def read_until(reader: socket.socket, end: bytes) -> bytes:
    taken = bytearray()
    with anyio.fail_after(DEADLINE_SECONDS):
        while not taken.endswith(end):
            piece = await asyncio.get_running_loop().sock_recv(reader, 65_536)
            assert piece, f"the stream was over after {taken[-100:]!r}"
            taken += piece
    return bytes(taken)


def body_of(answer: bytes) -> bytes:
    """Return the body without the head and the chunk sizes."""
    at, pieces = answer.index(b"\r\n\r\n") + 4, []
    while at < len(answer):
        mark = answer.index(b"\r\n", at)
        end = mark + 2 + int(answer[at:mark], 16)
        pieces.append(answer[mark + 2 : end])
        at = end + 2
    return b"".join(pieces)


@contextmanager
def open_pipes(count: int) -> Iterator[list[int]]:
    """Yield the reading ends of `count` pipes."""
    pipes = [os.pipe() for _ in range(count)]
    try:
        yield [ends[0] for ends in pipes]
    finally:
        for ends in pipes:
            os.close(ends[0])
            os.close(ends[1])


def is_empty(pipe: int) -> bool:
    return not select.select([pipe], [], [], 0)[0]


async def test_what_is_put_and_what_is_sent_comes_in_one_body_in_the_order_it_was_written() -> None:
    async with answered() as (answer, reader):
        expected = b""
        is_put: list[bool] = []
        for number in range(40):
            block = b"data: %d\n\n" % number
            expected += block
            if number % 5 == 4:
                await answer.send(block)  # uvloop writes this block at the end of its turn
            else:
                is_put.append(answer.put(block))
                if not is_put[-1]:
                    await answer.send(block)
            if number % 7 == 0:
                await anyio.sleep(0.001)
        await answer.send(b"", more=False)
        assert body_of(await read_until(reader, b"0\r\n\r\n")) == expected
        assert True in is_put, "the short way was never taken"


async def test_readers_that_share_a_block_and_have_others_of_the_same_length_alone_get_their_own_bytes() -> None:
    async with answered() as (one, first), answered() as (other, second):
        await anyio.sleep(0.001)
        expected = {one: b"", other: b""}
        for number in range(20):
            shared = b"data: s%02d\n\n" % number
            for answer, letter in ((one, b"a"), (other, b"b")):
                for block in (shared, b"data: %b%02d\n\n" % (letter, number)):
                    assert answer.put(block)
                    expected[answer] += block
        for answer, reader in ((one, first), (other, second)):
            await answer.send(b"", more=False)
            assert body_of(await read_until(reader, b"0\r\n\r\n")) == expected[answer]


async def test_a_reader_that_takes_nothing_is_told_by_false_and_later_has_every_byte_in_order() -> None:
    async with answered() as (answer, reader):
        await anyio.sleep(0.001)
        blocks = [b"%06d" % number * 500 for number in range(1_000)]
        count = 0
        while answer.put(blocks[count]):
            count += 1
        assert 10 < count < len(blocks) - 1, "the kernel keeps some, not all"
        async with anyio.create_task_group() as tasks:

            async def go_on() -> None:
                for block in blocks[count:]:
                    if not answer.put(block):
                        await answer.send(block)
                await answer.send(b"", more=False)

            tasks.start_soon(go_on)
            taken = await read_until(reader, b"0\r\n\r\n")
        assert body_of(taken) == b"".join(blocks)


@pytest.mark.parametrize("ending", ["the reader leaves", "the server drops it", "the server closes it"])
async def test_nothing_is_written_for_a_reader_that_has_left_not_even_to_who_has_its_descriptor_now(
    ending: str,
) -> None:
    async with answered() as (answer, reader):
        await anyio.sleep(0.001)
        assert answer.put(b"data: 1\n\n")
        if ending == "the reader leaves":
            reader.close()
        elif ending == "the server drops it":
            answer.abort()
        else:
            await answer.send(b"", more=False)
        while answer.put(b"data: 2\n\n"):
            assert ending == "the reader leaves", "only who leaves unheard is noticed later"
            await anyio.lowlevel.checkpoint()
        with open_pipes(50) as pipes:  # a new pipe may get the number of the closed descriptor
            for _ in range(20):
                assert not answer.put(b"data: 3\n\n")
                await anyio.lowlevel.checkpoint()
            assert all(is_empty(pipe) for pipe in pipes)


async def test_a_connection_can_be_dropped_although_its_reader_takes_nothing() -> None:
    async with answered() as (answer, reader):
        block = b"x" * 100_000
        while answer.put(block):
            pass
        answer.abort()
        assert (await answer.receive())["type"] == "http.request"
        assert (await answer.receive())["type"] == "http.disconnect"
        with anyio.fail_after(DEADLINE_SECONDS), pytest.raises((ConnectionResetError, AssertionError)):
            await read_until(reader, b"0\r\n\r\n")


async def test_where_there_is_no_body_of_chunks_nothing_is_put() -> None:
    async with answered("HEAD") as (answer, _):
        await anyio.sleep(0.001)
        assert answer.put == put_nothing


async def test_nobody_but_its_endpoint_keeps_the_headers_of_a_request() -> None:
    async with answered() as (answer, _):
        headers = answer.scope["headers"]
        assert headers == [(b"host", b"x")]
        assert [each for each in gc.get_referrers(headers[0]) if isinstance(each, list)] == [headers]


async def test_a_snapshot_of_any_size_follows_the_head_and_blocks_follow_the_snapshot() -> None:
    async with answered() as (answer, reader):
        large = answer.large
        assert large is not None
        assert large.is_ready(), "nothing waits"
        snapshot = b"s" * 3_000_000
        assert not large.put_large([memoryview(snapshot)[:2_999_999], b"\nid: 1\n\n"])
        assert not large.is_ready()
        assert not answer.put(b"block")
        assert large.unsent() > 1_000_000
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(answer.send, b"block")
            tasks.start_soon(large.drained)
            taken = await read_until(reader, b"block\r\n")
        assert body_of(taken) == snapshot[:2_999_999] + b"\nid: 1\n\n" + b"block"
        await anyio.sleep(0.001)
        assert large.unsent() == 0
        assert large.is_ready()


async def test_the_first_block_leaves_with_the_head_in_one_write() -> None:
    async with answered(first=b"snapshot") as (answer, reader):
        taken = await asyncio.get_running_loop().sock_recv(reader, 65_536)
        assert taken.startswith(b"HTTP/1.1 200 ")
        assert body_of(taken) == b"snapshot"
        assert answer.put(b"next")
        assert body_of(taken + await read_until(reader, b"next\r\n")) == b"snapshotnext"


async def test_a_head_without_a_block_is_sent_at_the_end_of_its_turn() -> None:
    async with answered() as (answer, reader):
        taken = await read_until(reader, b"\r\n\r\n")
        assert taken.count(b"HTTP/1.1 200 ") == 1
        assert answer.large is not None
        assert answer.large.put_large([b"snapshot"])
        assert body_of(taken + await read_until(reader, b"snapshot\r\n")) == b"snapshot"


async def test_a_snapshot_for_a_reader_that_has_left_goes_nowhere() -> None:
    async with answered() as (answer, reader):
        assert answer.large is not None
        reader.close()
        assert (await answer.receive())["type"] == "http.request"
        assert (await answer.receive())["type"] == "http.disconnect"
        assert not answer.large.is_ready()
        assert answer.large.put_large([b"s" * 1_000_000])
        with anyio.fail_after(DEADLINE_SECONDS):
            await answer.large.drained()


SNAPSHOT = b"s" * 300_000
"""More than the small buffer takes, and less than a larger one where the system allows no more (net.core.wmem_max)."""

ROOM_BYTES = 500_000
"""Room for one snapshot, not for two."""


def put_snapshot(answer: Answer, snapshot: bytes = SNAPSHOT) -> bool:
    """Write a snapshot. Returns whether the kernel has taken it whole."""
    assert answer.large is not None
    answer.large.put_large([snapshot])
    return transport_of(answer).get_write_buffer_size() == 0


def transport_of(answer: Answer) -> asyncio.Transport:
    transport: asyncio.Transport = answer.scope["extensions"][ABORT].__self__
    return transport


def send_buffer_bytes(answer: Answer) -> int:
    size: int = transport_of(answer).get_extra_info("socket").getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
    return size


async def test_the_kernel_takes_a_whole_snapshot_and_the_buffer_is_small_again_once_it_was_read() -> None:
    async with answered(wide_buffers=WideBuffers(STALL_SECONDS, ROOM_BYTES)) as (answer, reader):
        assert put_snapshot(answer)
        assert answer.large is not None
        assert answer.large.unsent() > SEND_BUFFER_BYTES, "what the kernel holds counts as unsent, too"
        assert answer.put(b"block")
        assert send_buffer_bytes(answer) > len(SNAPSHOT), "its reader has read nothing yet"
        await read_until(reader, b"block\r\n")
        assert answer.put(b"next")
        assert send_buffer_bytes(answer) == 2 * SEND_BUFFER_BYTES  # the kernel doubles it
        await read_until(reader, b"next\r\n")
        assert put_snapshot(answer), "a later snapshot gets a larger buffer, too"
        await read_until(reader, SNAPSHOT[-100:] + b"\r\n")
        assert put_snapshot(answer, SNAPSHOT + b"more"), "and a still larger one a still larger buffer"
        await read_until(reader, b"more\r\n")
        assert answer.put(b"last")
        assert send_buffer_bytes(answer) == 2 * SEND_BUFFER_BYTES


async def test_the_buffer_is_small_again_as_soon_as_the_small_one_would_do() -> None:
    async with answered(wide_buffers=WideBuffers(STALL_SECONDS, ROOM_BYTES)) as (answer, reader):
        assert put_snapshot(answer)
        taken = 0
        while taken < len(SNAPSHOT) - 40_000:  # so events that follow each other closely do not keep it large
            taken += len(await asyncio.get_running_loop().sock_recv(reader, len(SNAPSHOT) - 40_000 - taken + 200))
        assert answer.put(b"block")
        assert send_buffer_bytes(answer) == 2 * SEND_BUFFER_BYTES


async def test_all_larger_buffers_share_one_room_and_who_has_read_or_left_makes_room() -> None:
    room = WideBuffers(STALL_SECONDS, ROOM_BYTES)
    async with answered(wide_buffers=room) as (first, reader), answered(wide_buffers=room) as (second, _):
        assert put_snapshot(first)
        assert not put_snapshot(second), "the other reader has not read its snapshot"
        await read_until(reader, SNAPSHOT[-100:] + b"\r\n")
        async with answered(wide_buffers=room) as (third, third_reader):
            assert put_snapshot(third), "it takes the room of the reader that has read all"
            await read_until(third_reader, SNAPSHOT[-100:] + b"\r\n")
            assert send_buffer_bytes(first) == 2 * SEND_BUFFER_BYTES
            gone = weakref.ref(transport_of(third))
        del third
        gc.collect()
        assert gone() is None, "nothing keeps a connection that has ended"
        async with answered(wide_buffers=room) as (fourth, _):
            assert put_snapshot(fourth), "the third reader has left"


async def test_a_reader_that_takes_nothing_is_dropped_and_its_room_comes_back() -> None:
    room = WideBuffers(0.2, ROOM_BYTES)
    async with answered(wide_buffers=room) as (answer, _), answered(wide_buffers=room) as (next_one, next_reader):
        assert put_snapshot(answer)
        assert (await answer.receive())["type"] == "http.request"
        assert (await answer.receive())["type"] == "http.disconnect"
        with anyio.fail_after(DEADLINE_SECONDS):
            while not put_snapshot(next_one):
                await read_until(next_reader, SNAPSHOT[-100:] + b"\r\n")


async def test_a_reader_that_is_slow_but_reads_is_not_dropped() -> None:
    room = WideBuffers(STALL_SECONDS, ROOM_BYTES)
    async with answered(wide_buffers=room) as (answer, reader):
        assert put_snapshot(answer)
        assert answer.large is not None
        for _ in range(2):
            room.look()
            assert send_buffer_bytes(answer) > len(SNAPSHOT), "it is looked at while its buffer is large"
            before = answer.large.unsent()
            while answer.large.unsent() == before:  # the reader's system tells of room when it has enough
                assert await asyncio.get_running_loop().sock_recv(reader, 16_384), "it was dropped"
        room.look()
        assert answer.put(b"next")


@pytest.mark.parametrize("has_read", [True, False])
async def test_the_room_of_a_reader_that_leaves_comes_back_when_the_kernel_holds_nothing_more(has_read: bool) -> None:
    room = WideBuffers(STALL_SECONDS, ROOM_BYTES)
    async with answered(wide_buffers=room) as (answer, reader), answered(wide_buffers=room) as (next_one, _):
        assert put_snapshot(answer)
        if has_read:
            await read_until(reader, SNAPSHOT[-100:] + b"\r\n")
        reader.shutdown(socket.SHUT_WR)  # an orderly end: the kernel goes on sending what it holds
        assert (await answer.receive())["type"] == "http.request"
        assert (await answer.receive())["type"] == "http.disconnect"
        assert put_snapshot(next_one) is has_read


async def test_a_reader_whose_request_has_an_unfinished_body_gives_its_room_back_too() -> None:
    room = WideBuffers(STALL_SECONDS, ROOM_BYTES)
    async with answered(wide_buffers=room, body_bytes=5) as (answer, reader):
        assert put_snapshot(answer)
        await read_until(reader, SNAPSHOT[-100:] + b"\r\n")
        reader.shutdown(socket.SHUT_WR)
        assert (await answer.receive())["type"] == "http.disconnect"
    async with answered(wide_buffers=room) as (next_one, _):
        assert put_snapshot(next_one)


async def test_one_reader_gets_a_bounded_part_of_the_room() -> None:
    async with answered(wide_buffers=WideBuffers(STALL_SECONDS)) as (answer, _):
        put_snapshot(answer, b"s" * 3 * WIDE_MAX_BYTES)
        assert send_buffer_bytes(answer) <= WIDE_MAX_BYTES
        assert transport_of(answer).get_write_buffer_size() > WIDE_MAX_BYTES
