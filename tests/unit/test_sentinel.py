"""The answers of several sentinels give one address: the newest configuration is used, and a hanging sentinel delays no
search."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial

import anyio
import pytest

from threadcast.store.topology.route import Address
from threadcast.store.topology.sentinel import ASK_SECONDS, Sentinels
from threadcast_protocol.wire.errors import Unavailable

pytestmark = pytest.mark.anyio

SERVICE = "tc"


@asynccontextmanager
async def sentinels(*answers: Callable[[], bytes]) -> AsyncIterator[Sentinels]:
    """Return the answers of each sentinel to the two requests of a search."""
    serving: set[asyncio.StreamWriter] = set()

    async def serve(answer: Callable[[], bytes], reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        serving.add(writer)
        with suppress(ConnectionError):
            while data := await reader.read(65_536):
                assert SERVICE.encode() in data
                writer.write(answer())
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()
        serving.discard(writer)

    async with AsyncExitStack() as stack:
        urls: list[str] = []
        for answer in answers:
            listener = await asyncio.start_server(partial(serve, answer), "127.0.0.1", 0)
            await stack.enter_async_context(listener)
            urls.append(f"redis://127.0.0.1:{listener.sockets[0].getsockname()[1]}")
        made = Sentinels(urls, SERVICE)
        try:
            yield made
        finally:
            await made.close()
            with anyio.fail_after(5):
                while serving:
                    await anyio.sleep(0.01)


def names(port: int, epoch: int) -> bytes:
    """Return the replies of a sentinel that reports a primary at 127.0.0.1:`port` since failover number `epoch`."""
    address = f"*2\r\n$9\r\n127.0.0.1\r\n${len(str(port))}\r\n{port}\r\n"
    return (address + f"*2\r\n$12\r\nconfig-epoch\r\n${len(str(epoch))}\r\n{epoch}\r\n").encode()


async def found(*replies: bytes) -> Address:
    """Return the result of a search when the sentinels give these answers; b"" stands for no answer."""
    async with sentinels(*(partial(bytes, each) for each in replies)) as asked:
        return await asked.find()


async def test_the_newest_configuration_counts_against_sentinels_that_were_cut_off() -> None:
    assert await found(names(1, 4), names(2, 5), names(1, 4)) == Address("127.0.0.1", 2)


async def test_once_most_have_answered_one_that_hangs_is_not_waited_for() -> None:
    started = anyio.current_time()
    assert await found(b"", names(1, 4), names(1, 4)) == Address("127.0.0.1", 1)
    assert anyio.current_time() - started < ASK_SECONDS


async def test_one_that_answers_is_enough() -> None:
    assert await found(b"", b"", names(1, 4)) == Address("127.0.0.1", 1)


async def test_one_that_may_not_tell_its_configuration_counts_least() -> None:
    assert await found(names(7, 0), names(9, 9).replace(b"config-epoch", b"another-fact")) == Address("127.0.0.1", 7)


@pytest.mark.parametrize(
    ("says", "text"),
    [
        (b"", "within 0.4 s"),
        (b"*-1\r\n", "is its name in store.url right"),
        (b"-NOAUTH Authentication required.\r\n", "sentinel_password"),
        (b"-ERR nothing\r\n", "the query failed"),
    ],
)
async def test_when_none_knows_it_is_said_why(says: bytes, text: str) -> None:
    with pytest.raises(Unavailable, match=r"^no sentinel of store\.url names the primary") as refused:
        await found(says * 2, says * 2)
    assert text in refused.value.message


async def test_those_who_ask_at_once_share_an_answer() -> None:
    asked = 0

    def answer() -> bytes:
        nonlocal asked
        asked += 1
        return names(5, 1)

    async with sentinels(answer) as one:
        async with anyio.create_task_group() as tasks:
            for _ in range(10):
                tasks.start_soon(one.find)
        assert (asked, await one.find()) == (1, Address("127.0.0.1", 5))
