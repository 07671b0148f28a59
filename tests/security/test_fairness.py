"""One caller starts more runs than a worker can hold: the further runs wait, their chats show this, and other callers
are answered.

Each attack runs against real processes: a server with tokens, workers that are killed, and a tree of sub-chats that has
only one slot for a run.
"""

import json
from pathlib import Path

import anyio
import httpx2
import pytest

from tests.support.fleet import FAST, fleet_on_new_store
from tests.support.reader import Watcher, watching
from tests.support.server import DEADLINE_SECONDS, Process, command, serving, user_message
from tests.support.tokens import bearer, tokens
from threadcast.actor.run_slots import WAITING_MAX
from threadcast.api.errors import QuotaSpent
from threadcast.base.telemetry import Metrics
from threadcast.settings.sources import load_settings
from threadcast.store.memory.store import MemoryStore
from threadcast.wiring.values import TURNS_PER_HOUR, quotas_of
from threadcast_protocol.wire.commands import UserMessage
from threadcast_protocol.wire.events import ToolStatus
from threadcast_protocol.wire.principal import Principal

pytestmark = pytest.mark.anyio

APP = Path(__file__).parents[1] / "integration/delegating_tools.py"

FLOOD = 2_100
"""A number of chats above the limit of a worker (`limits.worker_max_chats`)."""

POSTS_AT_ONCE = 20
NEVER_ENDS = "demo/hang?after=1&rate=0"
GREEDY, MODEST, OPERATOR = bearer("greedy"), bearer("modest"), bearer("operator")
CONFIG = "[tools.countdown]\n" + tokens(
    greedy="turns_per_hour = 0\nturns_per_day = 0", modest="", operator='permissions = ["metrics"]'
)


async def flood(url: str, count: int, model: str = NEVER_ENDS, headers: dict[str, str] = GREEDY) -> None:
    """Post a message to each of this number of new chats, `greedy-0` and so on."""
    bound = anyio.CapacityLimiter(POSTS_AT_ONCE)
    async with httpx2.AsyncClient(base_url=url, timeout=DEADLINE_SECONDS, headers=headers) as client:

        async def post(number: int) -> None:
            async with bound:
                body = user_message("a", "work", params={"model": model})
                answer = await client.post(f"/v1/chats/greedy-{number}/commands", json=body)
                assert answer.status_code == 202, answer.text

        async with anyio.create_task_group() as tasks:
            for number in range(count):
                tasks.start_soon(post, number)


def waits(watcher: Watcher) -> bool:
    """Return whether the chat's run waits until its caller has fewer active runs."""
    return watcher.state is not None and watcher.state.runtime.waits_for == "runs_at_once"


def works(watcher: Watcher) -> bool:
    return watcher.state is not None and watcher.state.draft is not None


async def waiting_count(server: Process, headers: dict[str, str]) -> float:
    """Return the number of waiting runs in the metrics of a server."""
    async with httpx2.AsyncClient(base_url=server.url, timeout=DEADLINE_SECONDS) as client:
        answer = await client.get("/metrics", headers=headers)
    assert answer.status_code == 200, answer.text
    lines = answer.text.splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith("threadcast_runs_waiting{"))


@pytest.mark.row("SEC-2")
async def test_a_flood_of_runs_of_one_caller_waits_and_another_caller_is_answered(tmp_path: Path) -> None:
    limits = {"THREADCAST_LIMITS__RUNS_PER_PRINCIPAL": "3"}
    async with serving(tmp_path, config=CONFIG, environment=limits) as server:
        await flood(server.url, FLOOD)
        # The first chats work; the last chat waits, and its readers see that it waits.
        query = "&snapshot=1"
        async with watching(server.url, f"greedy-{FLOOD - 1}", headers=GREEDY, query=query) as last:
            await last.until(waits)
            assert last.state is not None
            assert last.state.runtime.state == "generating"
            assert "another of your runs ends" in (last.state.runtime.status_text or "")
            async with watching(server.url, "modest", headers=MODEST, query=query) as modest:
                body = user_message("a", "hello", params={"model": "demo/echo?rate=0"})
                assert (await command(server.url, "modest", body, MODEST)).status_code == 202
                await modest.until(lambda w: w.runs_ended)
            assert await waiting_count(server, OPERATOR) > WAITING_MAX / 2
            # A waiting run can be stopped like any other.
            stop = {"type": "abort", "client_request_id": "stop"}
            assert (await command(server.url, f"greedy-{FLOOD - 1}", stop, GREEDY)).status_code in (200, 202)
            await last.until(lambda w: w.runs_ended)


@pytest.mark.row("SEC-2")
async def test_when_a_run_ends_the_run_that_has_waited_longest_follows(tmp_path: Path) -> None:
    limits = {"THREADCAST_LIMITS__RUNS_PER_PRINCIPAL": "1"}
    async with serving(tmp_path, environment=limits) as server, anyio.create_task_group() as tasks:
        watchers: list[Watcher] = []
        ready = [anyio.Event() for _ in range(4)]
        for number in range(4):
            tasks.start_soon(_watch, server.url, f"c{number}", watchers, ready[number])
            await ready[number].wait()
            await command(server.url, f"c{number}", user_message("a", "x", params={"model": NEVER_ENDS}))
            await watchers[number].until(works if number == 0 else waits)
        for number in range(4):
            await watchers[number].until(works)
            assert all(waits(later) for later in watchers[number + 1 :])
            assert [watcher.runs_ended for watcher in watchers] == [1] * number + [0] * (4 - number)
            await command(server.url, f"c{number}", {"type": "abort", "client_request_id": "stop"})
            await watchers[number].until(lambda w: w.runs_ended)
        tasks.cancel_scope.cancel()


async def _watch(url: str, chat_id: str, watchers: list[Watcher], ready: anyio.Event) -> None:
    async with watching(url, chat_id, headers={}, query="&snapshot=1") as watcher:
        watchers.append(watcher)
        ready.set()
        await anyio.sleep_forever()


@pytest.mark.row("SEC-2")
async def test_a_run_that_waits_for_a_person_has_no_slot_and_waits_for_one_when_it_goes_on(tmp_path: Path) -> None:
    limits = {"THREADCAST_LIMITS__RUNS_PER_PRINCIPAL": "1"}
    async with (
        serving(tmp_path, environment=limits) as server,
        watching(server.url, "asks") as asks,
        watching(server.url, "works") as other,
    ):
        text = 'call write_note {"name": "n.md", "text": "x"}'
        await command(server.url, "asks", user_message("a", text, params={"model": "demo/tools?rate=0"}))
        await asks.until(lambda w: w.state is not None and w.state.runtime.pause_reasons)
        await command(server.url, "works", user_message("a", "x", params={"model": NEVER_ENDS}))
        await other.until(works)
        # The call is approved while the other run has the only slot: the run waits, and then continues.
        assert asks.state is not None
        (reason,) = asks.state.runtime.pause_reasons
        decision = {"type": "tool_decision", "client_request_id": "d", "accepted": True}
        await command(
            server.url, "asks", {**decision, "tool_call_id": reason.tool_call_id, "input_hash": reason.input_hash}
        )
        await asks.until(waits)
        assert not any(isinstance(event, ToolStatus) and event.status == "running" for event in asks.events)
        await command(server.url, "works", {"type": "abort", "client_request_id": "stop"})
        await asks.until(lambda w: w.runs_ended)
        assert any(isinstance(event, ToolStatus) and event.status == "done" for event in asks.events)


@pytest.mark.row("SEC-2")
async def test_trees_of_sub_chats_do_not_block_themselves_with_one_slot(tmp_path: Path) -> None:
    limits = {"THREADCAST_LIMITS__RUNS_PER_PRINCIPAL": "1"}
    inner = f"call delegate {json.dumps({'task': 'say what you can do'})}"
    text = "\n".join([f"call delegate {json.dumps({'task': inner})}"] * 2)
    async with (
        serving(tmp_path, app=APP, environment=limits) as server,
        watching(server.url, "one") as one,
        watching(server.url, "two") as two,
    ):
        for chat_id in ("one", "two"):
            await command(server.url, chat_id, user_message("a", text, params={"model": "demo/tools?rate=0"}))
        for root in (one, two):
            await root.until(lambda w: w.runs_ended)
            assert root.state is not None
            assert root.state.runtime.outcome == "complete"
            results = [node for node in root.state.nodes.values() if node.role == "tool"]
            assert [node.tool_failed for node in results] == [False, False]


@pytest.mark.row("SEC-2")
async def test_a_killed_worker_takes_no_slot_with_it(tmp_path: Path) -> None:
    with fleet_on_new_store(tmp_path, limits={**FAST, "RUNS_PER_PRINCIPAL": "2"}) as fleet:
        await fleet.open(workers=2)
        slow = "demo/slow?delay=1&words=20&rate=20"
        async with anyio.create_task_group() as tasks:
            watchers: list[Watcher] = []
            for number in range(10):
                ready = anyio.Event()
                tasks.start_soon(_watch, fleet.url, f"greedy-{number}", watchers, ready)
                await ready.wait()
            await flood(fleet.url, 10, slow, headers={})
            await watchers[0].until(lambda w: w.state is not None and w.state.path)
            with anyio.fail_after(DEADLINE_SECONDS):
                while not any(fleet.kill_owner(f"greedy-{number}") for number in range(10)):
                    await anyio.sleep(0.01)
            for watcher in watchers:
                await watcher.until(lambda w: w.runs_ended, 2 * DEADLINE_SECONDS)
                assert watcher.state is not None
                assert watcher.state.runtime.outcome == "complete"
            for watcher in watchers[:2]:  # the remaining worker has both slots
                await command(fleet.url, watcher.chat_id, user_message("b", "x", params={"model": NEVER_ENDS}))
                await watcher.until(works)
            tasks.cancel_scope.cancel()


@pytest.mark.row("SEC-2")
async def test_readiness_and_metrics_tell_when_chats_wait_for_a_worker(tmp_path: Path) -> None:
    with fleet_on_new_store(tmp_path) as fleet:
        await fleet.open(workers=0)
        async with httpx2.AsyncClient(base_url=fleet.url, timeout=DEADLINE_SECONDS) as client:
            assert "workers" not in (await client.get("/readyz")).json()
            await flood(fleet.url, 3, headers={})
            with anyio.fail_after(DEADLINE_SECONDS):
                while (late := await client.get("/readyz")).json().get("workers") != "late":
                    await anyio.sleep(0.1)
            assert late.status_code == 200
            assert late.json()["detail"].startswith("3 chats wait for a worker")
            assert await waiting_count(fleet.webs[0], {}) == 3
            await fleet.add_worker()
            with anyio.fail_after(DEADLINE_SECONDS):
                while "workers" in (await client.get("/readyz")).json():
                    await anyio.sleep(0.1)


@pytest.mark.row("SEC-2")
async def test_callers_with_tokens_have_a_quota_of_runs_unless_the_operator_sets_another(tmp_path: Path) -> None:
    path = tmp_path / "threadcast.toml"
    path.write_text(CONFIG)
    settings = load_settings({}, file=str(path)).settings
    store = MemoryStore()
    quotas = quotas_of(settings, store, Metrics())
    for number in range(TURNS_PER_HOUR):
        await store.spend_allowance("modest", f"c1 {number}", 0, 0)
        await store.spend_allowance("greedy", f"c1 {number}", 0, 0)
    message = UserMessage(client_request_id="one-more", content="x")
    with pytest.raises(QuotaSpent, match="1000 in an hour"):
        await quotas.spend(Principal("modest"), "c1", message)
    await quotas.spend(Principal("greedy"), "c1", message)
    open_server = quotas_of(load_settings({}).settings, store, Metrics())
    assert await open_server.spend(Principal("modest"), "c1", message) is None
