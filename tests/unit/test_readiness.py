"""The readiness of a process before it is open, while its store fails, and while it stops."""

import pytest

from threadcast.http.readiness import Readiness
from threadcast.store.memory.store import MemoryStore
from threadcast.store.ports import Standing
from threadcast_protocol.wire.errors import Failed, Internal, Unavailable

pytestmark = pytest.mark.anyio


class _Failing(MemoryStore):
    def __init__(self, trouble: Failed) -> None:
        super().__init__()
        self._trouble = trouble

    async def ping(self) -> Standing:
        raise self._trouble


async def test_a_process_is_starting_then_ready_then_draining() -> None:
    readiness = Readiness()
    said = [await readiness.look()]
    readiness.open(MemoryStore())
    said.append(await readiness.look())
    readiness.drain()
    said.append(await readiness.look())
    assert [(status, body.status) for status, body in said] == [(503, "starting"), (200, "ready"), (503, "draining")]


async def test_one_that_was_told_to_stop_before_it_was_open_is_never_ready() -> None:
    readiness = Readiness()
    readiness.drain()
    readiness.open(MemoryStore())
    assert (await readiness.look())[0] == 503


@pytest.mark.parametrize("trouble", [Unavailable("it is away"), Internal("the store answered with an error: ERR x")])
async def test_whatever_the_store_answers_is_told_and_is_no_crash(trouble: Failed) -> None:
    readiness = Readiness()
    readiness.open(_Failing(trouble))
    status, body = await readiness.look()
    assert (status, body.status, body.store) == (503, "unavailable", trouble.message)
