"""A worker that receives SIGTERM hands its chats over within a second, even while runs are open; readers notice
nothing.

The owner gets SIGTERM in the middle of an answer, while tools, processes or sub-chats run, or while the chat waits;
another worker is ready to take over. A reader that stayed connected must have received one snapshot and events without
a gap (its `Watcher` refuses gaps), and its text must equal the text of an undisturbed run. Between the last event of
the old owner and the first event of the new owner at most one second may pass (DESIGN §4.6). Settings are the defaults
unless a test changes them.
"""

import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from tests.bars import bar_seconds
from tests.support.fleet import Fleet
from tests.support.reader import TimedWatcher, Watcher, watching
from tests.support.server import DEADLINE_SECONDS, Process, ask, command
from threadcast_protocol.wire.events import PauseRequired, ProcessCompleted, SubchatUpdate

pytestmark = [pytest.mark.anyio, pytest.mark.slow(6)]

TOOLS = Path(__file__).with_name("deploy_tools.py")
ESSAY = "demo/essay?words=5000"
"""At forty words a second the answer takes two minutes, which is long enough for a worker to start on any machine; a
test aborts the answer at its end."""
HANDOVER_SECONDS = 1.0
"""Maximum seconds between two events of a reader during a handover (DESIGN §4.6)."""


class Race:
    """A web process and the worker that owns all chats; the worker that takes over is the owner in the next test."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self.url = ""
        self._owner: Process | None = None
        self._heir: Process | None = None

    async def open(self) -> None:
        self.url = (await self.fleet.add_web()).url
        self._owner = await self.fleet.add_worker(TOOLS)

    @property
    def owner(self) -> Process:
        assert self._owner is not None
        return self._owner

    async def add_heir(self) -> None:
        self._heir = await self.fleet.add_worker(TOOLS)

    async def stop_owner(self) -> None:
        assert await self.owner.stop() == 0
        self.change()

    async def seconds_until_given(self, chat_id: str) -> float:
        """Stop the owner; returns the seconds from the signal until it no longer holds the chat."""
        self.owner.send(signal.SIGTERM)
        told_at = time.monotonic()
        with anyio.fail_after(DEADLINE_SECONDS):
            while self.fleet.owner(chat_id) is self.owner:
                await anyio.sleep(0.005)
        passed_seconds = time.monotonic() - told_at
        assert await self.owner.ended() == 0
        self.change()
        return passed_seconds

    def tidy(self) -> None:
        """Leave only one worker after a failed test, so that the next test does not fail, too."""
        if self._heir is None:
            return
        if not self.owner.has_ended:
            self.owner.kill()
        self.change()

    def change(self) -> None:
        """Record that the other worker is now the owner."""
        self.fleet.workers.remove(self.owner)
        self._owner, self._heir = self._heir, None


@pytest.fixture(scope="module")
def race(shared_fleet: Fleet) -> Race:
    race = Race(shared_fleet)
    anyio.run(race.open)
    return race


@pytest.fixture(autouse=True)
def tidied(race: Race) -> Iterator[None]:
    yield
    race.tidy()


def call(tool: str, **arguments: object) -> str:
    return f"call {tool} {json.dumps(arguments)}"


def marks(fleet: Fleet, chat_id: str) -> int:
    """Return how often a tool began in this chat."""
    return len((fleet.data / "files" / f"{chat_id}.marks").read_text().splitlines())


def ends(watcher: Watcher) -> list[str]:
    """Return the final status of each tool call, in the order of the calls."""
    said = [str(frame["status"]) for frame in watcher.frames if frame["type"] == "tool_status"]
    return [status for status in said if status not in ("running", "progress")]


@pytest.mark.row("SES-4", "SES-8")
async def test_answers_in_the_middle_go_on_within_a_second_and_without_a_seam(race: Race, chat_id: str) -> None:
    async with watching(race.url, f"{chat_id}-r") as reference:
        await ask(race.url, f"{chat_id}-r", "write", f"{ESSAY}&rate=0")
        await reference.at_rest()
    chats = [TimedWatcher(f"{chat_id}-{number}") for number in range(4)]
    async with anyio.create_task_group() as tasks:

        async def talk(chat: TimedWatcher) -> None:
            async with watching(race.url, chat.chat_id, watcher=chat):
                await ask(race.url, chat.chat_id, "write", f"{ESSAY}&rate=40")
                await chat.until(lambda _: chat.deltas_after_handover > 5)
                await command(race.url, chat.chat_id, {"type": "abort", "client_request_id": "enough"})
                await chat.at_rest()

        for chat in chats:
            tasks.start_soon(talk, chat)
        for chat in chats:
            await chat.until(lambda w: w.types().count("stream_delta") > 5)
        await race.add_heir()
        assert all(race.fleet.owner(chat.chat_id) is race.owner for chat in chats)
        await race.stop_owner()
    (question, (_, whole)) = reference.messages
    for chat in chats:
        (asked, (_, text)) = chat.messages
        assert asked == question and whole.startswith(text)
        assert chat.snapshots == 1
        assert "message_removed" not in chat.types(), "what was shown is never taken back where the model can go on"
        assert max(chat.gaps()) <= bar_seconds(HANDOVER_SECONDS)


async def test_a_tool_that_may_run_again_does_so_at_the_next_owner(race: Race, chat_id: str) -> None:
    chat = TimedWatcher(chat_id)
    async with watching(race.url, chat_id, watcher=chat):
        await ask(race.url, chat_id, call("safe", ticks=1_000), "demo/tools?rate=0")
        await chat.until(lambda w: w.types().count("tool_status") > 3)
        await race.add_heir()
        await race.stop_owner()
        await chat.at_rest()
    assert (marks(race.fleet, chat_id), chat.snapshots) == (2, 1)
    assert ends(chat) == ["done"]
    assert [role for role, _ in chat.messages] == ["user", "assistant", "tool", "assistant"]
    assert max(chat.gaps()) <= bar_seconds(HANDOVER_SECONDS)


async def test_a_tool_that_must_not_run_twice_and_needs_a_moment_gets_it(race: Race, chat_id: str) -> None:
    async with watching(race.url, chat_id) as chat:
        await ask(race.url, chat_id, call("once", ticks=1_000), "demo/tools?rate=0")
        await chat.until(lambda w: "tool_status" in w.types())
        await race.add_heir()
        (race.fleet.data / f"files/{chat_id}.finish").touch()
        await race.stop_owner()
        await chat.at_rest()
    assert (marks(race.fleet, chat_id), chat.snapshots) == (1, 1)
    assert ends(chat) == ["done"]


@pytest.mark.parametrize("tool", ["once", "deaf"])
async def test_a_tool_that_must_not_run_twice_and_takes_too_long_is_answered_and_the_run_goes_on(
    race: Race, chat_id: str, tool: str
) -> None:
    chat = TimedWatcher(chat_id)
    arguments = {"ticks": 1_000} if tool == "once" else {}
    async with watching(race.url, chat_id, watcher=chat):
        await ask(race.url, chat_id, call(tool, **arguments), "demo/tools?rate=0")
        await chat.until(lambda w: "tool_status" in w.types())
        await race.add_heir()
        assert await race.seconds_until_given(chat_id) <= bar_seconds(HANDOVER_SECONDS)
        await chat.at_rest()
    assert (marks(race.fleet, chat_id), chat.snapshots) == (1, 1)
    assert ends(chat) == ["outcome_unknown"]


async def test_an_approval_that_waits_holds_nobody_up_and_is_decided_at_the_next_owner(
    race: Race, chat_id: str
) -> None:
    async with watching(race.url, chat_id) as chat:
        await ask(race.url, chat_id, call("asks", text="yes"), "demo/tools?rate=0")
        await chat.until(lambda w: "pause_required" in w.types())
        await race.add_heir()
        await race.stop_owner()
        (pause,) = [event for event in chat.events if isinstance(event, PauseRequired)]
        decision = {"tool_call_id": pause.reasons[0].tool_call_id, "accepted": True}
        body = {"type": "tool_decisions", "client_request_id": "d", "decisions": [decision]}
        assert (await command(race.url, chat_id, body)).status_code == 202
        await chat.at_rest()
    assert chat.snapshots == 1
    assert ("tool", "allowed: yes") in chat.messages


async def test_processes_end_with_their_worker_and_the_chat_is_elsewhere_within_the_second(
    race: Race, chat_id: str
) -> None:
    """A child process that ignores SIGTERM is ended too, although a tool uses the whole time limit: the supervisor
    waits for both at the same time."""
    chat = TimedWatcher(chat_id)
    stubborn = call("run_process", command="trap '' TERM; while :; do sleep 0.05; done")
    async with watching(race.url, chat_id, watcher=chat):
        await ask(race.url, chat_id, stubborn, "demo/tools?rate=0")
        await chat.at_rest()
        await ask(race.url, chat_id, call("safe", ticks=1_000), "demo/tools?rate=0", "b")
        await chat.until(lambda w: w.types().count("tool_status") > 5)
        await race.add_heir()
        assert await race.seconds_until_given(chat_id) <= bar_seconds(HANDOVER_SECONDS)
        await chat.at_rest(2)
    (end,) = [event for event in chat.events if isinstance(event, ProcessCompleted)]
    assert (end.status, chat.snapshots) == ("killed", 1)
    assert max(chat.gaps()) <= bar_seconds(HANDOVER_SECONDS)


async def test_a_parent_and_its_child_are_handed_over_together(race: Race, chat_id: str) -> None:
    above = TimedWatcher(chat_id)
    async with watching(race.url, chat_id, watcher=above):
        await ask(race.url, chat_id, call("delegate", task="say what you can do"), "demo/tools?rate=12")
        await above.until(lambda w: "subchat_update" in w.types())
        (child,) = {event.subchat_id for event in above.events if isinstance(event, SubchatUpdate)}
        below = TimedWatcher(child)
        async with watching(race.url, child, watcher=below):
            await race.add_heir()
            await race.stop_owner()
            await above.at_rest()
            await below.at_rest()
    assert [role for role, _ in below.messages] == ["user", "assistant"]
    assert above.messages[2][1] == below.messages[1][1]
    assert (above.runs_ended, below.runs_ended, above.snapshots) == (1, 1, 1)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_second_signal_ends_the_worker_at_once_and_costs_no_more_than_a_crash(
    race: Race, chat_id: str, number: signal.Signals
) -> None:
    async with watching(race.url, chat_id) as chat:
        await ask(race.url, chat_id, call("safe", ticks=1_000), "demo/tools?rate=0")
        await chat.until(lambda w: w.types().count("tool_status") > 3)
        await race.add_heir()
        before = len(race.fleet.logged("process.stopping"))
        race.owner.send(number)
        await race.fleet.until_logged("process.stopping", before + 1)
        race.owner.send(number)
        assert await race.owner.ended() == 128 + number
        race.change()
        await chat.at_rest()
    assert (marks(race.fleet, chat_id), chat.snapshots) == (2, 1)
    assert ends(chat) == ["done"]


async def test_what_is_not_safe_in_time_is_cancelled_and_counted_and_taken_over(fleet: Fleet, chat_id: str) -> None:
    """drain_seconds ends long before the tool does, so the chat waits until its lease expires, as after a crash."""
    web = await fleet.add_web()
    owner = await fleet.add_worker(TOOLS, limits={"DRAIN_SECONDS": "0.1"})
    async with watching(web.url, chat_id) as chat:
        await ask(web.url, chat_id, call("safe", ticks=1_000), "demo/tools?rate=0")
        await chat.until(lambda w: w.types().count("tool_status") > 3)
        await fleet.add_worker(TOOLS)
        assert await owner.stop() == 0
        (line,) = fleet.logged("worker.drained_late")
        assert line["chats_left"] == 1
        await chat.at_rest()
    assert (marks(fleet, chat_id), chat.snapshots) == (2, 1)
