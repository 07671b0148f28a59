"""Owners whose connections the store closes: dead owners are taken over at once, live owners keep their chats, and a
tool that may not run twice has ended before the log records its end.

The workers are real processes with the default lease of 3.5 s, over a store of their own. The log line `owner.silent`
shows that an ownership ended by silence, not by its lease.
"""

import random
from contextlib import AsyncExitStack
from pathlib import Path

import anyio
import pytest
from bench.pauses import count_takeovers

from tests.support.fleet import Fleet, fleet_on_new_store
from tests.support.reader import Watcher, watching
from tests.support.server import DEADLINE_SECONDS, ask
from tests.torture.proxy import Proxy

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

APP = Path(__file__).parent / "ticking_app.py"
LEASE_SECONDS = 3.5
DEFAULTS: dict[str, str] = {}
ESSAY = "demo/essay?words=600&rate=60"
KICKS = 20
STOPS = 20


async def until_old(fleet: Fleet) -> None:
    """Wait until the store has run for the length of a lease; then a new worker may look for silent owners at once."""
    with anyio.fail_after(DEADLINE_SECONDS):
        while fleet.store.client.info("server")["uptime_in_seconds"] < LEASE_SECONDS + 1:
            await anyio.sleep(0.1)


def ticks(fleet: Fleet, chat_id: str) -> int:
    file = fleet.data / "files" / f"{chat_id}.ticks"
    return file.read_text().count("tick") if file.exists() else 0


def statuses(watcher: Watcher) -> list[str]:
    return [str(frame["status"]) for frame in watcher.frames if frame["type"] == "tool_status"]


@pytest.mark.parametrize("fleet", [DEFAULTS], indirect=True)
async def test_a_killed_owner_is_known_by_its_closed_connection(fleet: Fleet) -> None:
    await until_old(fleet)
    async with watching(fleet.url, "killed") as watcher:
        await ask(fleet.url, "killed", "write", ESSAY)
        await watcher.until(lambda w: w.types().count("stream_delta") > 3)
        assert fleet.kill_owner("killed")
        await fleet.until_logged("owner.silent")
        await fleet.until_logged("chat.taken_over")
        await watcher.at_rest()
        assert watcher.snapshots == 1


@pytest.mark.parametrize("fleet", [DEFAULTS], indirect=True)
async def test_workers_whose_connections_the_store_closes_one_by_one_are_not_taken_over(fleet: Fleet) -> None:
    await until_old(fleet)
    async with watching(fleet.url, "kicked") as watcher:
        await ask(fleet.url, "kicked", "call ticks {}", "demo/tools?rate=0")
        await watcher.until(lambda w: "tool_status" in w.types())
        for number in range(KICKS):
            listeners = fleet.store.client.client_list(_type="pubsub")
            if listeners:
                fleet.store.ask("CLIENT", "KILL", "ID", listeners[number % len(listeners)]["id"])
            await anyio.sleep(0.25)
        await watcher.at_rest()
    assert statuses(watcher) == ["running", "done"]
    assert ticks(fleet, "kicked") == 500
    assert fleet.logged("owner.silent") == fleet.logged("chat.taken_over") == []


@pytest.mark.parametrize("fleet", [DEFAULTS], indirect=True)
async def test_when_all_connections_are_closed_at_once_nobody_is_taken_over(fleet: Fleet) -> None:
    await until_old(fleet)
    async with watching(fleet.url, "all") as watcher:
        await ask(fleet.url, "all", "write", ESSAY)
        await watcher.until(lambda w: w.types().count("stream_delta") > 3)
        for _ in range(KICKS):
            fleet.store.ask("CLIENT", "KILL", "TYPE", "pubsub")
            await anyio.sleep(0.1)
        await watcher.at_rest()
    assert fleet.logged("owner.silent") == fleet.logged("chat.taken_over") == []


async def test_a_tool_that_may_not_run_twice_has_stopped_before_its_outcome_is_unknown(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        fleet = stack.enter_context(fleet_on_new_store(tmp_path, "--app", str(APP)))
        await fleet.add_web()
        line = await stack.enter_async_context(Proxy("owner > store", fleet.store.process.path))
        owner = await fleet.start("worker", store_url=f"redis://127.0.0.1:{line.port}/0").ready()
        await until_old(fleet)
        watcher = await stack.enter_async_context(watching(fleet.url, "severed"))
        await ask(fleet.url, "severed", "call ticks {}", "demo/tools?rate=0")
        await watcher.until(lambda w: "tool_status" in w.types())
        await fleet.add_worker()
        assert line.sever(30) > 0
        await fleet.until_logged("owner.silent")
        await watcher.until(lambda w: "outcome_unknown" in statuses(w))
        had = ticks(fleet, "severed")
        assert not owner.has_ended
        await anyio.sleep(0.5)
        assert 0 < ticks(fleet, "severed") == had < 500
        await watcher.at_rest()


@pytest.mark.parametrize("fleet", [DEFAULTS], indirect=True)
async def test_workers_that_stand_still_for_300_ms_are_not_taken_over(fleet: Fleet) -> None:
    """`python -m bench.pauses` stops the workers a thousand times."""
    assert await count_takeovers(fleet, STOPS, 0.3, random.Random(20)) == 0
