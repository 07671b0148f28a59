"""Processes of a chat, with real actors: their end is one event and is reported to the model, and a dead owner's
processes are lost."""

import json
from pathlib import Path

import anyio
import pytest

from tests.unit.actor_harness import CHAT, FAST, Harness, abort, say
from tests.unit.fake_tools import FakeTool
from tests.unit.faulty_store import DEADLINE_SECONDS
from tests.unit.pure_chat import PureChat, table
from tests.unit.test_tree import check_law
from threadcast.chat.processes import CHAT_PROCESSES_MAX, begin_process, end_process
from threadcast.tools import process_tools
from threadcast.tools.python import PythonTool
from threadcast_protocol.wire.commands import UserMessage
from threadcast_protocol.wire.errors import Conflict
from threadcast_protocol.wire.events import ProcessCompleted
from threadcast_protocol.wire.messages import JsonObject

pytestmark = pytest.mark.anyio

start_process = PythonTool(process_tools.start_process.function, policy="auto")


@pytest.fixture
def harness(tmp_path: Path) -> Harness:
    return Harness(start_process, process_tools.read_process, process_tools.stop_process, model="demo/tools?rate=0")


def calling(tool: str, arguments: JsonObject, request_id: str = "ask") -> UserMessage:
    return say(f"call {tool} {json.dumps(arguments)}", request_id)


def starting(command: str, request_id: str = "ask", **more: object) -> UserMessage:
    return calling("start_process", {"command": command, "description": "a job", **more}, request_id)


async def ends(harness: Harness, count: int = 1) -> list[ProcessCompleted]:
    """Wait until this many processes have ended."""
    with anyio.fail_after(DEADLINE_SECONDS):
        while True:
            found = [event for event in await harness.events() if isinstance(event, ProcessCompleted)]
            if len(found) >= count:
                return found
            await anyio.sleep(0.01)


async def process_id(harness: Harness) -> str:
    return (await harness.state()).private.relations.processes[0].process_id


async def test_the_end_of_a_process_is_an_event_and_the_model_is_told_in_its_next_run(harness: Harness) -> None:
    async with harness.hosting("w1"):
        await harness.post(starting("echo built; exit 2"))
        await harness.until_rest()
        (end,) = await ends(harness)
    assert (end.status, end.exit_code, end.short_description, end.mode) == ("failed", 2, "a job", "background")
    state = await harness.state()
    (aside,) = state.private.asides
    assert str(aside.message.content).endswith("(a job): failed, exit code 2]\nbuilt")
    assert state.private.relations.processes == ()
    assert await harness.run_outcomes() == ["complete"]


async def test_its_end_may_wake_the_chat(harness: Harness) -> None:
    async with harness.hosting("w1"):
        await harness.post(starting("true", wake=True))
        await harness.until_rest(runs=2)
    assert [role for role, _ in await harness.texts()][-1] == "assistant"


async def test_it_is_read_and_stopped_by_later_calls_and_an_abort_leaves_it_alone(harness: Harness) -> None:
    async with harness.hosting("w1"):
        await harness.post(starting("echo ready; sleep 600"))
        await harness.until_rest()
        name = await process_id(harness)
        await harness.post(abort())
        with anyio.fail_after(DEADLINE_SECONDS):
            while (
                "ready"
                not in (
                    view := harness.worker_context("w1").processes.read((CHAT, name)),
                    (view and view.output) or "",
                )[1]
            ):
                await anyio.sleep(0.01)
        await harness.post(calling("read_process", {"process_id": name}, "read"))
        await harness.until_rest(runs=2)
        await harness.post(calling("stop_process", {"process_id": name}, "stop-it"))
        await harness.until_rest(runs=3)
        (end,) = await ends(harness)
    tools = [text for role, text in await harness.texts() if role == "tool"]
    assert tools[1:] == ["running\nready", f"Process {name} has been stopped."]
    assert end.status == "killed"


async def test_a_chat_whose_process_runs_is_not_given_back_and_a_worker_that_stops_ends_it(harness: Harness) -> None:
    async with harness.hosting("w1") as host:
        await harness.post(starting("sleep 600"))
        await harness.until_rest()
        name = await process_id(harness)
        releases = harness.store.calls["release"]
        assert await host.drain() == 0
        assert harness.store.calls["release"] == releases == 0
        assert not harness.worker_context("w1").processes.runs((CHAT, name))
    (end,) = await ends(harness)
    assert (end.status, end.process_id) == ("killed", name)


@pytest.mark.row("SES-4")
async def test_a_process_of_an_owner_that_died_is_lost(harness: Harness) -> None:
    async with harness.hosting("w1"):
        await harness.post(starting("sleep 600", wake=True))
        await harness.until_rest()
        name = await process_id(harness)
    harness.store.clock.now_ms += 2 * FAST.lease_ms
    async with harness.hosting("w2"):
        (end,) = await ends(harness)
        await harness.until_rest(runs=2)
    assert (end.status, end.exit_code, end.process_id) == ("lost", None, name)


async def test_a_chat_that_is_lost_or_deleted_takes_its_processes_along(harness: Harness) -> None:
    async with harness.hosting("w1"):
        await harness.post(starting("sleep 600"))
        await harness.until_rest()
        name = await process_id(harness)
        assert await harness.store.delete(CHAT, "local", "n")
        with anyio.fail_after(DEADLINE_SECONDS):
            while harness.worker_context("w1").processes.runs((CHAT, name)):
                await anyio.sleep(0.01)


async def test_a_process_that_could_not_be_started_does_not_run_and_the_model_hears_why(harness: Harness) -> None:
    async with harness.hosting("w1"):
        await harness.post(starting("true", directory="/no/such/place"))
        await harness.until_rest()
    assert (await harness.state()).private.relations.processes == ()
    (text,) = [text for role, text in await harness.texts() if role == "tool"]
    assert "could not be started" in text


def test_eight_processes_of_a_chat_run_at_once_and_no_more() -> None:
    chat = PureChat(table({"start": FakeTool(name="start")}), say("ask"))
    chat.write(lambda builder: [begin_process(builder, "w1", "x", wakes=False) for _ in range(CHAT_PROCESSES_MAX)])
    with pytest.raises(Conflict, match="8 processes"):
        chat.write(lambda builder: begin_process(builder, "w1", "x", wakes=False))
    name = chat.state.private.relations.processes[0].process_id
    chat.write(lambda builder: end_process(builder, name, "completed", 0))
    chat.write(lambda builder: begin_process(builder, "w1", "x", wakes=False))
    assert chat.write(lambda builder: end_process(builder, name, "completed", 0)) == [], "told once"
    check_law(chat)
