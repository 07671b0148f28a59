"""New connections: in each turn of the event loop, the first request of one connection begins, in order."""

import asyncio

import pytest

from threadcast.http.newcomers import HELD_MAX_BYTES, Newcomers

pytestmark = pytest.mark.anyio


class Connection:
    """A connection that notes the turn of the loop in which it began."""

    def __init__(self, turns: "Turns") -> None:
        self.loop = asyncio.get_running_loop()
        self.turns = turns
        self.begun: list[tuple[int, bytes]] = []

    def begin(self, data: bytes) -> None:
        self.begun.append((self.turns.count, data))


class Turns:
    """Counts the turns of the loop."""

    def __init__(self) -> None:
        self.count = 0
        self._next()

    def _next(self) -> None:
        self.count += 1
        asyncio.get_running_loop().call_soon(self._next)

    async def after(self, count: int) -> None:
        until = self.count + count
        while self.count < until:
            await asyncio.sleep(0)


async def test_requests_begin_one_in_each_turn_and_in_order() -> None:
    turns, newcomers = Turns(), Newcomers()
    first, *others = (Connection(turns) for _ in range(5))
    assert not newcomers.holds(first, b"a"), "nobody else is there"
    for number, each in enumerate(others):
        assert newcomers.holds(each, b"%d" % number)
    assert newcomers.holds(others[0], b"+"), "further bytes wait, too"
    await turns.after(10)
    began = [each.begun for each in others]
    assert [data for ((_, data),) in began] == [b"0+", b"1", b"2", b"3"]
    at = [turn for ((turn, _),) in began]
    assert at == list(range(at[0], at[0] + 4))
    assert not newcomers.holds(Connection(turns), b"later")


async def test_a_client_that_leaves_while_it_waits_costs_no_request() -> None:
    turns, newcomers = Turns(), Newcomers()
    first, leaving, staying = (Connection(turns) for _ in range(3))
    for each in (first, leaving, staying):
        newcomers.holds(each, b"a")
    assert newcomers.forget(leaving) == b"a"
    await turns.after(10)
    assert (len(leaving.begun), len(staying.begun)) == (0, 1)


async def test_large_requests_do_not_wait_beyond_the_bound() -> None:
    turns, newcomers = Turns(), Newcomers()
    first, large, small, other = (Connection(turns) for _ in range(4))
    newcomers.holds(first, b"a")
    assert newcomers.holds(large, b"b" * HELD_MAX_BYTES)
    assert not newcomers.holds(small, b"c"), "it handles its bytes now"
    assert newcomers.holds(large, b"d")
    assert [len(data) for _, data in large.begun] == [HELD_MAX_BYTES + 1], "it does not wait any longer"
    assert newcomers.holds(other, b"e" * HELD_MAX_BYTES), "there is room again"
