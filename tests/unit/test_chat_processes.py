"""Processes of a chat, with real actors: the end is one event, the model is told, and a dead owner's are lost."""

import json
from pathlib import Path

import anyio
import pytest

from protocol.commands import UserMessage
from protocol.errors import Conflict
from protocol.events import ProcessCompleted, RuntimeUpdated
from protocol.messages import JsonObject
from protocol.processes import PROCESSES_MAX, begin_process, end_process
from server.tools import process_tools
from server.tools.python import PythonTool
from tests.unit.actor_house import CHAT, FAST, House, abort, say
from tests.unit.fake_tools import FakeTool
from tests.unit.faulty_store import DEADLINE_SECONDS
from tests.unit.pure_chat import PureChat, table
from tests.unit.test_tree import check_law

pytestmark = pytest.mark.anyio

start_process = PythonTool(process_tools.start_process.function, policy="auto")


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(start_process, process_tools.read_process, process_tools.stop_process, model="demo/tools?rate=0")


def calling(tool: str, arguments: JsonObject, request_id: str = "ask") -> UserMessage:
    return say(f"call {tool} {json.dumps(arguments)}", request_id)


def starting(command: str, request_id: str = "ask", **more: object) -> UserMessage:
    return calling("start_process", {"command": command, "description": "a job", **more}, request_id)


async def until_rest(house: House, runs: int = 1) -> None:
    """Wait until so many runs have ended and none is open."""
    with anyio.fail_after(DEADLINE_SECONDS):
        while len(await outcomes(house)) < runs or not (await house.state()).is_at_rest:
            await anyio.sleep(0.01)


async def outcomes(house: House) -> list[str]:
    return [e.outcome for e in await house.events() if isinstance(e, RuntimeUpdated) and e.outcome is not None]


async def ends(house: House, count: int = 1) -> list[ProcessCompleted]:
    """Wait for so many."""
    with anyio.fail_after(DEADLINE_SECONDS):
        while True:
            found = [event for event in await house.events() if isinstance(event, ProcessCompleted)]
            if len(found) >= count:
                return found
            await anyio.sleep(0.01)


async def process_id(house: House) -> str:
    return (await house.state()).private.relations.processes[0].process_id


async def test_the_end_of_a_process_is_an_event_and_the_model_is_told_in_its_next_run(house: House) -> None:
    async with house.hosting("w1"):
        await house.post(starting("echo built; exit 2"))
        await until_rest(house)
        (end,) = await ends(house)
    assert (end.status, end.exit_code, end.short_description, end.mode) == ("failed", 2, "a job", "background")
    state = await house.state()
    (aside,) = state.private.asides
    assert str(aside.message.content).endswith("(a job): failed, exit code 2]\nbuilt")
    assert state.private.relations.processes == ()
    assert await outcomes(house) == ["complete"]


async def test_its_end_may_wake_the_chat(house: House) -> None:
    async with house.hosting("w1"):
        await house.post(starting("true", wake=True))
        await until_rest(house, 2)
    assert [role for role, _ in await house.texts()][-1] == "assistant"


async def test_it_is_read_and_stopped_by_later_calls_and_an_abort_leaves_it_alone(house: House) -> None:
    async with house.hosting("w1"):
        await house.post(starting("echo ready; sleep 600"))
        await until_rest(house)
        name = await process_id(house)
        await house.post(abort())
        with anyio.fail_after(DEADLINE_SECONDS):
            while (
                "ready" not in (view := house.place("w1").processes.read((CHAT, name)), (view and view.output) or "")[1]
            ):
                await anyio.sleep(0.01)
        await house.post(calling("read_process", {"process_id": name}, "read"))
        await until_rest(house, 2)
        await house.post(calling("stop_process", {"process_id": name}, "stop-it"))
        await until_rest(house, 3)
        (end,) = await ends(house)
    tools = [text for role, text in await house.texts() if role == "tool"]
    assert tools[1:] == ["running\nready", f"Process {name} has been stopped."]
    assert end.status == "killed"


async def test_a_chat_whose_process_runs_is_not_given_back_and_a_worker_that_stops_ends_it(house: House) -> None:
    async with house.hosting("w1") as host:
        await house.post(starting("sleep 600"))
        await until_rest(house)
        name = await process_id(house)
        releases = house.store.calls["release"]
        assert await host.drain() == 0
        assert house.store.calls["release"] == releases == 0
        assert not house.place("w1").processes.runs((CHAT, name))
    (end,) = await ends(house)
    assert (end.status, end.process_id) == ("killed", name)


@pytest.mark.row("SES-4")
async def test_a_process_of_an_owner_that_died_is_lost(house: House) -> None:
    async with house.hosting("w1"):
        await house.post(starting("sleep 600", wake=True))
        await until_rest(house)
        name = await process_id(house)
    house.store.clock.now_ms += 2 * FAST.lease_ms
    async with house.hosting("w2"):
        (end,) = await ends(house)
        await until_rest(house, 2)
    assert (end.status, end.exit_code, end.process_id) == ("lost", None, name)


async def test_a_chat_that_is_lost_or_deleted_takes_its_processes_along(house: House) -> None:
    async with house.hosting("w1"):
        await house.post(starting("sleep 600"))
        await until_rest(house)
        name = await process_id(house)
        assert await house.store.delete(CHAT, "local", "n")
        with anyio.fail_after(DEADLINE_SECONDS):
            while house.place("w1").processes.runs((CHAT, name)):
                await anyio.sleep(0.01)


async def test_a_process_that_could_not_be_started_does_not_run_and_the_model_hears_why(house: House) -> None:
    async with house.hosting("w1"):
        await house.post(starting("true", directory="/no/such/place"))
        await until_rest(house)
    assert (await house.state()).private.relations.processes == ()
    (text,) = [text for role, text in await house.texts() if role == "tool"]
    assert "could not be started" in text


def test_eight_processes_of_a_chat_run_at_once_and_no_more() -> None:
    chat = PureChat(table({"start": FakeTool(name="start")}))
    chat.command(say("ask"))
    chat.write(lambda ledger: [begin_process(ledger, "w1", "x", wakes=False) for _ in range(PROCESSES_MAX)])
    with pytest.raises(Conflict, match="8 processes"):
        chat.write(lambda ledger: begin_process(ledger, "w1", "x", wakes=False))
    name = chat.state.private.relations.processes[0].process_id
    chat.write(lambda ledger: end_process(ledger, name, "completed", 0))
    chat.write(lambda ledger: begin_process(ledger, "w1", "x", wakes=False))
    assert chat.write(lambda ledger: end_process(ledger, name, "completed", 0)) == [], "told once"
    check_law(chat)
