"""Checks which operations of a durable agent may add messages to the path at the same time."""

import asyncio
from contextlib import AbstractAsyncContextManager

import pytest

from threadcast.agent_loop.durable.path_lock import PathLock

pytestmark = [pytest.mark.anyio, pytest.mark.row("AGT-2")]


class Order:
    """Runs operations at the same time; `order` records their beginnings and ends."""

    def __init__(self, lock: PathLock) -> None:
        self.lock = lock
        self.order: list[str] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._ends: dict[str, asyncio.Event] = {}

    async def call(self, name: str, *but: str) -> None:
        await self._begin(name, self.lock.shared(*but))

    async def answer(self, key: str) -> None:
        await self._begin(key, self.lock.alone(key))

    async def end(self, name: str) -> None:
        self._ends[name].set()
        await self._settle()

    async def _begin(self, name: str, held: AbstractAsyncContextManager[None]) -> None:
        self._ends[name] = asyncio.Event()
        self._tasks.append(asyncio.create_task(self._hold(name, held)))
        await self._settle()

    async def _hold(self, name: str, held: AbstractAsyncContextManager[None]) -> None:
        async with held:
            self.order.append(name)
            await self._ends[name].wait()

    async def _settle(self) -> None:
        for _ in range(5):
            await asyncio.sleep(0)


async def test_calls_run_together_and_an_answer_alone() -> None:
    order = Order(PathLock())
    await order.call("one")
    await order.call("two")
    await order.answer("0")
    assert order.order == ["one", "two"]
    await order.end("one")
    await order.end("two")
    assert order.order == ["one", "two", "0"]
    await order.call("three")
    await order.answer("1")
    assert order.order == ["one", "two", "0"]
    await order.end("0")
    assert len(order.order) == 4, "the next call or the next answer"


async def test_an_answer_that_is_open_since_a_crash_goes_on_before_anything_else() -> None:
    order = Order(PathLock("2.1.0"))
    await order.call("call")
    await order.answer("2.0.0")
    assert order.order == []
    await order.answer("2.1.0")
    assert order.order == ["2.1.0"]
    await order.end("2.1.0")
    assert order.order[1] in ("call", "2.0.0")


async def test_the_end_of_a_race_does_not_wait_for_the_answers_of_its_losers() -> None:
    order = Order(PathLock("2.1.0"))
    await order.call("other race", "3.0.", "3.1.")
    assert order.order == []
    await order.call("race", "2.1.")
    assert order.order == ["race"]
    await order.end("race")
    assert order.order == ["race", "other race"], "the answer of the loser is not waited for any more"
