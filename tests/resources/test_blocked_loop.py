"""A tool that blocks the event loop beyond the lease: the log names it, another worker takes over, nothing runs twice.

Two workers with a short lease. On the first, one chat's tool blocks the loop that all chats share, while another
chat's tool has effects; when it wakes up, its chats are somebody else's, and it finds that out before it does anything.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from server.store.embedded import VOLATILE
from tests.integration.harness import Process, Watcher, command, start, user_message, watching
from tests.ports import free_port
from tests.resources.measures import eventually, metric, started_store

pytestmark = [pytest.mark.anyio, pytest.mark.slow(15)]

APP = Path(__file__).with_name("greedy_tools.py")
LEASE_SECONDS = 2.5
"""Long enough for a busy machine to keep it until it is meant to be lost."""

BLOCK_SECONDS = 6.0
FAST = {
    "THREADCAST_LIMITS__LEASE_SECONDS": str(LEASE_SECONDS),
    "THREADCAST_LIMITS__BEAT_SECONDS": "0.5",
    "THREADCAST_LIMITS__SWEEP_SECONDS": "0.2",
}
TICKS_AFTER_MAX = 1
"""Of a tool that was waiting while the loop stood still: the step that was due in that moment runs before the clock
that stops it is looked at."""


class House:
    def __init__(self, base: Path, url: str, stack: ExitStack) -> None:
        self.base = base
        self.data = base / "data"
        self._environment = {"REDIS_URL": url, "THREADCAST_STORE__DATA_DIR": str(self.data), **FAST}
        self._stack = stack
        self.web = self.start("web", "--port", "0", log="web")

    def start(self, *arguments: str, log: str, metrics_port: int = 0) -> Process:
        environment = {**self._environment, "THREADCAST_SERVER__METRICS_PORT": str(metrics_port)}
        return self._stack.enter_context(start(*arguments, log=self.base / log, environment=environment))

    def marks(self, chat_id: str) -> list[tuple[int, float, str]]:
        """Process, time and word of each mark that a tool of that chat made."""
        path = self.data / "files" / f"{chat_id}.marks"
        lines = path.read_text().splitlines() if path.exists() else []
        return [(int(pid), float(at), word) for pid, at, word in map(str.split, lines)]


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    with ExitStack() as stack:
        store = stack.enter_context(started_store(tmp_path / "store", tuple(VOLATILE)))
        yield House(tmp_path, store.url, stack)


def statuses(watcher: Watcher) -> list[str]:
    return [str(frame["status"]) for frame in watcher.frames if frame["type"] == "tool_status"]


async def test_a_tool_that_blocks_the_loop_costs_its_worker_the_chats_and_nothing_is_done_twice(house: House) -> None:
    port = free_port()
    await house.web.ready()
    blocked = house.start("worker", "--app", str(APP), log="blocked", metrics_port=port)
    await blocked.ready()
    url = house.web.url
    tools = {"model": "demo/tools"}
    async with watching(url, "blocker") as blocker, watching(url, "ticker") as ticker:
        await command(url, "ticker", user_message("a", 'call ticks {"seconds":30}', params=tools))
        await command(url, "blocker", user_message("a", f'call blocks {{"seconds":{BLOCK_SECONDS}}}', params=tools))
        for watcher in (blocker, ticker):
            await watcher.until(lambda w: "running" in statuses(w))
        other = await house.start("worker", "--app", str(APP), log="other").ready()
        (house.data / "files" / "go").write_text("")
        for watcher in (blocker, ticker):
            await watcher.at_rest()
            assert statuses(watcher) == ["running", "outcome_unknown"]
            assert watcher.runs_ended == 1

        async def is_awake() -> bool:
            return "loop.blocked" in blocked.log_text()

        await eventually(is_awake)

        async def has_given_up() -> bool:
            return await metric(f"http://127.0.0.1:{port}", "chats_active") == 0

        await eventually(has_given_up)
        for watcher in (blocker, ticker):  # it woke up and wrote nothing
            async with watching(url, watcher.chat_id) as late:
                assert late.snapshot == watcher.snapshot
        assert await metric(f"http://127.0.0.1:{port}", "event_loop_blocked_total") >= 1
        log = blocked.log_text()
        assert "loop.is_blocked" in log, "it is said while it lasts"
        assert "greedy_tools.py" in log and " blocks" in log, "and where"
        assert "lease.lost" in log or "actor.fenced" in log
    begun, ended = [mark for mark in house.marks("blocker") if mark[2] in ("begins", "ends")]
    assert (begun[0], ended[0]) == (blocked.pid, blocked.pid), "a tool that may run once ran once"
    assert ended[1] - begun[1] > LEASE_SECONDS, "it was blocked for longer than its lease"
    ticks = house.marks("ticker")
    assert {pid for pid, _, _ in ticks} == {blocked.pid}
    assert sum(at > ended[1] for _, at, _ in ticks) <= TICKS_AFTER_MAX, "effects stop before anything else is done"
    assert other.pid != blocked.pid
