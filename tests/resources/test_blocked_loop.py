"""A tool that blocks the event loop beyond the lease: the log names the tool, another worker takes over, and nothing
runs twice.

There are two workers with a short lease. On the first worker, one chat's tool blocks the loop that all chats share,
while another chat's tool has effects. When the blocked worker continues, its chats have another owner, and the worker
notices this before it writes anything.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.ports import free_port
from tests.resources.measures import eventually, metric
from tests.support.fleet import Fleet, fleet_on_new_store
from tests.support.reader import Watcher, watching
from tests.support.server import command, user_message

pytestmark = [pytest.mark.anyio, pytest.mark.slow(15)]

APP = Path(__file__).with_name("greedy_tools.py")
LEASE_SECONDS = 2.5
"""Seconds of a lease, which is long enough that a worker on a busy machine keeps the lease until the test blocks the
loop."""

BLOCK_SECONDS = 6.0
FAST = {"LEASE_SECONDS": str(LEASE_SECONDS), "BEAT_SECONDS": "0.5", "SWEEP_SECONDS": "0.2"}
TICKS_AFTER_MAX = 1
"""Maximum steps that a tool may still make after the loop was blocked. One step is allowed, because a step that is due
runs before the loop checks the deadline that stops the tool."""


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    with fleet_on_new_store(tmp_path, "--app", str(APP), limits=FAST) as opened:
        yield opened


def marks(fleet: Fleet, chat_id: str) -> list[tuple[int, float, str]]:
    """Return process id, time and word of each mark that a tool of that chat made."""
    path = fleet.data / "files" / f"{chat_id}.marks"
    lines = path.read_text().splitlines() if path.exists() else []
    return [(int(pid), float(at), word) for pid, at, word in map(str.split, lines)]


def statuses(watcher: Watcher) -> list[str]:
    return [str(frame["status"]) for frame in watcher.frames if frame["type"] == "tool_status"]


async def test_a_tool_that_blocks_the_loop_costs_its_worker_the_chats_and_nothing_is_done_twice(
    fleet: Fleet,
) -> None:
    port = free_port()
    url = (await fleet.add_web()).url
    blocked = await fleet.start("worker", log="blocked", metrics_port=port).ready()
    tools = {"model": "demo/tools"}
    async with watching(url, "blocker") as blocker, watching(url, "ticker") as ticker:
        await command(url, "ticker", user_message("a", 'call ticks {"seconds":30}', params=tools))
        await command(url, "blocker", user_message("a", f'call blocks {{"seconds":{BLOCK_SECONDS}}}', params=tools))
        for watcher in (blocker, ticker):
            await watcher.until(lambda w: "running" in statuses(w))
        other = await fleet.add_worker()
        (fleet.data / "files" / "go").write_text("")
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
        for watcher in (blocker, ticker):  # the blocked worker continued and wrote nothing
            async with watching(url, watcher.chat_id) as late:
                assert late.snapshot == watcher.snapshot
        assert await metric(f"http://127.0.0.1:{port}", "event_loop_blocked_total") >= 1
        log = blocked.log_text()
        assert "loop.is_blocked" in log, "it is said while it lasts"
        assert "greedy_tools.py" in log and " blocks" in log, "and where"
        assert "lease.lost" in log or "actor.fenced" in log
    begun, ended = [mark for mark in marks(fleet, "blocker") if mark[2] in ("begins", "ends")]
    assert (begun[0], ended[0]) == (blocked.pid, blocked.pid), "a tool that may run once ran once"
    assert ended[1] - begun[1] > LEASE_SECONDS, "it was blocked for longer than its lease"
    ticks = marks(fleet, "ticker")
    assert {pid for pid, _, _ in ticks} == {blocked.pid}
    assert sum(at > ended[1] for _, at, _ in ticks) <= TICKS_AFTER_MAX, "effects stop before anything else is done"
    assert other.pid != blocked.pid
