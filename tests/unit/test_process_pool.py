"""Tests the output and the ends of real processes, and that no process is left running."""

import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from tests.unit.faulty_store import DEADLINE_SECONDS
from threadcast.tools import process_pool
from threadcast.tools.process_pool import ENDED_KEPT, OUTPUT_MAX_BYTES, ProcessPool
from threadcast.tools.processes import ProcessView
from threadcast_protocol.wire.errors import ToolFailed

pytestmark = pytest.mark.anyio


class Bench:
    """A pool, and the ends of its processes."""

    def __init__(self, directory: Path, pool: ProcessPool) -> None:
        self.pool = pool
        self.directory = directory
        self._ends: dict[str, ProcessView] = {}
        self._has_ended = anyio.Event()

    async def start(self, name: str, *argv: str, env: dict[str, str] | None = None) -> None:
        await self.pool.start(("c1", name), argv, cwd=str(self.directory), env=env or {}, on_end=self._end)

    def _end(self, view: ProcessView) -> None:
        assert view.process_id not in self._ends, "told once"
        self._ends[view.process_id] = view
        self._has_ended.set()
        self._has_ended = anyio.Event()

    async def end(self, name: str) -> ProcessView:
        with anyio.fail_after(DEADLINE_SECONDS):
            while name not in self._ends:
                await self._has_ended.wait()
        return self._ends[name]

    async def printed(self, name: str, text: str) -> None:
        with anyio.fail_after(DEADLINE_SECONDS):
            while text not in (view := self.pool.read(("c1", name)), view.output if view else "")[1]:
                await anyio.sleep(0.01)


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    bench = Bench(tmp_path, ProcessPool(pool_max=3))
    yield bench
    await bench.pool.aclose()


def lives(pid: int) -> bool:
    """A zombie does not count as running, because the tests do not reap the children of a killed guard."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return False
        return not Path("/proc/self").exists()
    return state != "Z"


async def until_gone(*pids: int) -> None:
    with anyio.fail_after(DEADLINE_SECONDS):
        while any(lives(pid) for pid in pids):
            await anyio.sleep(0.01)


@pytest.mark.parametrize(("code", "status"), [(0, "completed"), (3, "failed")])
async def test_a_process_ends_with_what_it_printed_and_its_exit_code(bench: Bench, code: int, status: str) -> None:
    await bench.start("p", "sh", "-c", f"echo out; echo err >&2; exit {code}")
    end = await bench.end("p")
    assert (end.status, end.exit_code, end.output) == (status, code, "out\nerr\n")
    assert bench.pool.read(("c1", "p")) == end, "it can still be read"
    assert bench.pool.read(("c2", "p")) is None, "by its own chat"


async def test_a_process_that_a_signal_ends_says_which(bench: Bench) -> None:
    await bench.start("p", "sh", "-c", "kill -9 $$")
    end = await bench.end("p")
    assert (end.status, end.exit_code) == ("failed", -signal.SIGKILL)


async def test_of_much_output_the_end_is_kept(bench: Bench) -> None:
    await bench.start("p", "sh", "-c", "yes 0123456789 | head -c 1000000; echo last")
    end = await bench.end("p")
    assert len(end.output) == OUTPUT_MAX_BYTES and end.output.endswith("last\n")


async def test_output_can_be_read_while_it_runs(bench: Bench) -> None:
    await bench.start("p", "sh", "-c", "echo ready; sleep 600")
    await bench.printed("p", "ready")
    assert bench.pool.runs(("c1", "p"))


async def test_killing_a_process_ends_all_that_it_started(bench: Bench) -> None:
    await bench.start("p", "sh", "-c", "trap '' TERM; sh -c 'trap \"\" TERM; echo $$; sleep 600' & wait; sleep 600")
    await bench.printed("p", "\n")
    view = bench.pool.read(("c1", "p"))
    assert view is not None
    grandchild = int(view.output)
    with anyio.fail_after(1.5):
        await bench.pool.kill(("c1", "p"))
    assert (await bench.end("p")).status == "killed"
    await until_gone(grandchild)


async def test_a_process_that_heeds_its_signal_is_asked_first(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_pool, "KILL_GRACE_SECONDS", DEADLINE_SECONDS)  # a busy machine delays the shell
    await bench.start("p", "sh", "-c", "trap 'echo bye; exit 0' TERM; echo ready; while :; do sleep 0.05; done")
    await bench.printed("p", "ready")
    await bench.pool.kill(("c1", "p"))
    end = await bench.end("p")
    assert (end.status, end.exit_code) == ("killed", 0)
    assert end.output.endswith("bye\n")


async def test_what_a_process_leaves_behind_goes_with_it(bench: Bench) -> None:
    await bench.start("p", "sh", "-c", "sleep 600 & echo $!")
    end = await bench.end("p")
    assert end.status == "completed"
    await until_gone(int(end.output))


async def test_a_process_sees_nothing_of_the_servers_environment(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    await bench.start("p", "env", env={"MINE": "1"})
    names = {line.partition("=")[0] for line in (await bench.end("p")).output.splitlines()}
    assert "MINE" in names and "PATH" in names
    assert names <= {"MINE", "PATH", "HOME", "LANG", "TMPDIR", "PWD", "LC_CTYPE"}


@pytest.mark.parametrize("argv", [[], [""], ["a\0b"]])
async def test_nothing_to_run_is_said(bench: Bench, argv: list[str]) -> None:
    with pytest.raises(ToolFailed):
        await bench.start("p", *argv)


async def test_a_program_that_is_not_there_is_an_end_and_a_directory_that_is_not_a_failure(bench: Bench) -> None:
    await bench.start("p", "no-such-program")
    end = await bench.end("p")
    assert end.status == "failed" and "could not be started" in end.output
    bench.directory /= "nowhere"
    with pytest.raises(ToolFailed, match="could not be started"):
        await bench.start("q", "true")


async def test_as_many_run_as_may_and_no_more(bench: Bench) -> None:
    for number in range(3):
        await bench.start(str(number), "sleep", "600")
    with pytest.raises(ToolFailed, match="runs 3 processes"):
        await bench.start("one more", "sleep", "600")
    await bench.pool.kill(("c1", "0"))
    await bench.start("one more", "sleep", "600")


async def test_the_output_of_the_newest_ended_processes_is_held(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("threadcast.tools.process_pool.ENDED_KEPT", 2)
    assert ENDED_KEPT == 256
    for number in range(3):
        await bench.start(str(number), "true")
        await bench.end(str(number))
    assert bench.pool.read(("c1", "0")) is None
    assert bench.pool.read(("c1", "1")) is not None


async def test_closing_the_pool_ends_everything(bench: Bench) -> None:
    for number in range(3):
        await bench.start(str(number), "sh", "-c", "echo $$; trap '' TERM; sleep 600")
        await bench.printed(str(number), "\n")
    views = [bench.pool.read(("c1", str(number))) for number in range(3)]
    await bench.pool.aclose()
    await until_gone(*(int(view.output) for view in views if view is not None))


WORKER = """
import asyncio, sys
from threadcast.tools.process_pool import ProcessPool

async def main():
    pool = ProcessPool()
    script = "sh -c 'echo $$; sleep 600' & echo $$; wait"
    await pool.start(("c1", "p"), ["sh", "-c", script], cwd=".", env={}, on_end=print)
    while (view := pool.read(("c1", "p"))) is None or view.output.count("\\n") < 2:
        await asyncio.sleep(0.01)
    print(" ".join(view.output.split()), flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


async def test_a_worker_that_is_killed_leaves_nothing_behind() -> None:
    with subprocess.Popen([sys.executable, "-c", WORKER], stdout=subprocess.PIPE) as worker:
        assert worker.stdout is not None
        with anyio.fail_after(DEADLINE_SECONDS):
            line = await anyio.to_thread.run_sync(worker.stdout.readline, abandon_on_cancel=True)
        pids = [int(pid) for pid in line.split()]
        assert len(pids) == 2 and all(map(lives, pids))
        worker.kill()
        await until_gone(*pids)


async def test_a_guard_that_is_killed_leaves_nothing_behind(bench: Bench) -> None:
    await bench.start("p", "sh", "-c", "echo $$; kill -KILL $PPID; sleep 600")
    end = await bench.end("p")
    assert end.status == "killed"
    await until_gone(int(end.output))


async def test_a_process_that_nobody_can_end_is_left_behind_and_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Simulates a process that sleeps in a driver: no signal reaches it."""
    pool = ProcessPool()
    await pool.start(("c1", "p"), ["sleep", "600"], cwd=str(tmp_path), env={}, on_end=lambda view: None)
    guard = pool._running["c1", "p"].guard
    monkeypatch.setattr(process_pool, "GONE_SECONDS", 0.05)
    monkeypatch.setattr(process_pool, "KILL_GRACE_SECONDS", 0.05)
    with monkeypatch.context() as deaf:
        deaf.setattr(process_pool._Running, "signal", lambda *_: None)
        with anyio.fail_after(DEADLINE_SECONDS):
            await pool.kill(("c1", "p"))
            assert pool.runs(("c1", "p")), "it has not ended"
            await pool.aclose()
    assert not pool._tasks, "nobody watches it any more"
    # our end of its pipe is closed, which ends the process when signals reach it again
    with anyio.fail_after(DEADLINE_SECONDS):
        await anyio.to_thread.run_sync(guard.wait)
