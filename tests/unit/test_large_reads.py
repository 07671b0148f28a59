"""Large reads run one at a time, with pauses in proportion to their CPU time."""

import threading
import time
from functools import partial

import anyio
import pytest

from threadcast.base import large_reads
from threadcast.base.large_reads import in_large_read, large_read

pytestmark = pytest.mark.anyio


def _work(seconds: float) -> None:
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


async def test_one_large_read_runs_at_a_time_and_its_error_ends_it() -> None:
    running = most = 0

    def read() -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        time.sleep(0)
        running -= 1
        raise ValueError("not JSON")

    def read_in_turn() -> None:
        with large_read():
            read()

    async def ask(number: int) -> None:
        with pytest.raises(ValueError, match="not JSON"):
            await (anyio.to_thread.run_sync(read_in_turn) if number % 2 else in_large_read(read))

    async with anyio.create_task_group() as tasks:
        for number in range(10):
            tasks.start_soon(ask, number)
    assert (running, most) == (0, 1)


async def test_a_pause_follows_a_large_read_and_only_the_next_one_waits_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr("threadcast.base.large_reads.time.sleep", pauses.append)
    monkeypatch.setattr(large_reads, "_free_at", 0.0)
    threads = {await in_large_read(threading.get_ident), await in_large_read(threading.get_ident)}
    assert threading.get_ident() not in threads
    await in_large_read(partial(_work, 0.05))
    await in_large_read(bool)
    assert pauses[0] == 0
    assert pauses[2] < 0.01, "no long read was before it"
    assert pauses[3] == pytest.approx(0.05 * large_reads.PAUSES, rel=0.5)
