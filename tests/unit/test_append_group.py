"""Writers that are due at about the same moment append in the same turn of the event loop."""

import asyncio

import anyio
import pytest

from tests.unit.faulty_store import DEADLINE_SECONDS
from threadcast.actor.append_group import AppendGroup
from threadcast.base.append_pace import PACE, TICK_SECONDS

pytestmark = pytest.mark.anyio


async def test_writers_that_are_due_at_about_the_same_moment_are_woken_together_and_later_ones_are_not() -> None:
    pace, loop = AppendGroup(), asyncio.get_running_loop()
    first, second, gone, later = (loop.create_future() for _ in range(4))
    tick = round(loop.time() / TICK_SECONDS + 5) * TICK_SECONDS
    pace.wake_at(tick - 0.4 * TICK_SECONDS, first)
    pace.wake_at(tick, gone)
    pace.wake_at(tick + 0.4 * TICK_SECONDS, second)
    pace.wake_at(tick + 3_600, later)
    gone.set_result(None)  # a writer that had much to write before
    with anyio.fail_after(DEADLINE_SECONDS):
        await first
    assert second.done()
    assert not later.done()


async def test_appends_are_a_pause_apart_for_the_answers_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PACE, "seconds", lambda count: 1.0 + count)
    pace = AppendGroup()
    writers = [asyncio.Event() for _ in range(3)]  # any distinct objects
    for writer in writers:
        pace.begin(writer)
    assert pace.due_at(10.0) == 14.0
    for writer in writers:
        pace.end(writer)
    assert pace.due_at(10.0) == 11.0


async def test_what_is_read_with_its_tick_is_due_though_the_last_time_reading_took_a_little_longer() -> None:
    now = asyncio.get_running_loop().time()
    assert AppendGroup.is_near(now + 0.4 * TICK_SECONDS)
    assert AppendGroup.is_near(now - 3_600)
    assert not AppendGroup.is_near(now + 3 * TICK_SECONDS)
