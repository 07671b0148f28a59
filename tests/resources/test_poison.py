"""A command and a tool that end every worker that runs them are given up after three attempts, and all readers see
that.

The tests end real worker processes. The command's client reads a refusal in the stream. The operator sees a metric, a
line in `doctor`, and the command itself in `threadcast dead-letters`. The chat continues with the next command.
"""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from tests.support.fleet import FAST, Fleet, fleet_on_new_store
from tests.support.reader import watching
from tests.support.server import Process, command, run_command, user_message
from threadcast_protocol.fold.snapshot import snapshot_of
from threadcast_protocol.wire.failures import failure_of
from threadcast_protocol.wire.messages import JsonObject

pytestmark = [pytest.mark.anyio, pytest.mark.slow(15)]

APP = Path(__file__).with_name("greedy_tools.py")
TRIES = 3
"""The number of takeovers without progress after which a command is given up; the death of the first owner is not
counted."""

WAIT_SECONDS = 60.0
"""Seconds for four workers to start and die, one after the other, on a busy machine."""


class Workers:
    """Keeps two workers running: replaces a worker that dies, as a supervisor does. `deaths` is the number of workers
    that died."""

    def __init__(self, fleet: Fleet) -> None:
        self.deaths = 0
        self._fleet = fleet

    def _start(self) -> Process:
        return self._fleet.start("worker", "--app", str(APP))

    async def supervise(self) -> None:
        at_work = [self._start(), self._start()]  # when one worker dies, the next has already started
        while True:
            await anyio.sleep(0.05)
            for dead in [each for each in at_work if each.has_ended]:
                self.deaths += 1
                at_work.remove(dead)
                at_work.append(self._start())


@asynccontextmanager
async def supervised(tmp_path: Path) -> AsyncIterator[tuple[Fleet, Workers]]:
    with fleet_on_new_store(tmp_path, limits=FAST) as fleet:
        workers = Workers(fleet)
        await fleet.add_web()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(workers.supervise)
            yield fleet, workers
            tasks.cancel_scope.cancel()


def operator(fleet: Fleet, *arguments: str) -> str:
    """Return the output of an operator's command."""
    return run_command(*arguments, directory=fleet.directory, store_url=fleet.store.url)


async def test_a_deadly_command_is_given_up_shown_to_its_client_and_kept_for_the_operator(tmp_path: Path) -> None:
    async with supervised(tmp_path) as (fleet, workers), watching(fleet.url, "c1") as watcher:
        assert "no command was given up" in operator(fleet, "dead-letters")
        await command(fleet.url, "c1", user_message("ok", "hello", params={"model": "demo/echo"}))
        await watcher.at_rest(seconds=WAIT_SECONDS)
        posted = await command(fleet.url, "c1", user_message("bad", "this is poison"))
        assert posted.status_code == 202
        await watcher.until(lambda w: any(_refuses(frame, "bad") for frame in w.frames), WAIT_SECONDS)
        (refusal,) = [frame for frame in watcher.frames if _refuses(frame, "bad")]
        assert refusal["result"]["code"] == "poison"
        assert workers.deaths == TRIES
        await watcher.until(
            lambda w: w.messages[-1][0] == "error", WAIT_SECONDS
        )  # every reader sees why no answer came
        (error,) = [frame for frame in watcher.frames if frame["type"] == "error"]
        assert (error["code"], error["fatal"]) == ("poison", False)
        assert watcher.messages[-1] == ("error", error["message"])
        await command(fleet.url, "c1", user_message("next", "still there?", params={"model": "demo/echo"}))
        await watcher.until(lambda w: w.messages[-1] == ("assistant", "You said: still there?"), WAIT_SECONDS)
        letters = operator(fleet, "dead-letters", "--json").splitlines()
        (letter,) = [json.loads(line) for line in letters]
        assert (letter["chat_id"], letter["request_id"], letter["reason"]) == ("c1", "bad", "poison")
        assert "this is poison" in letter["body"]
        assert "commands given up: 1" in operator(fleet, "dead-letters")
        assert "commands given up: 1; `threadcast dead-letters`" in operator(fleet, "doctor")
        assert fleet.logged("command.poisoned")
        async with watching(fleet.url, "c1") as later:  # a reader that joins later also sees the refusal
            await later.until(lambda w: w.state is not None)
            assert later.state is not None
            (report,) = [message for message in snapshot_of(later.state).messages if message.role == "error"]
            failure = failure_of(report)
            assert failure is not None and failure.code == "poison" and "this is poison" not in str(report)


async def test_a_run_that_kills_its_workers_is_ended_and_its_chat_goes_on(tmp_path: Path) -> None:
    async with supervised(tmp_path) as (fleet, workers), watching(fleet.url, "c1") as watcher:
        tools = {"model": "demo/tools"}
        await command(fleet.url, "c1", user_message("a", "call kills_its_worker {}", params=tools))
        await watcher.at_rest(seconds=WAIT_SECONDS)
        assert workers.deaths == 1, "a tool that may run once is not tried again"
        assert [str(f["status"]) for f in watcher.frames if f["type"] == "tool_status"] == [
            "running",
            "outcome_unknown",
        ]
        await command(fleet.url, "c1", user_message("b", "still there?", params={"model": "demo/echo"}))
        await watcher.until(lambda w: w.messages[-1] == ("assistant", "You said: still there?"), WAIT_SECONDS)
        again = "call kills_its_worker_again {}"
        await command(fleet.url, "c1", user_message("c", again, params=tools))
        await watcher.until(lambda w: "crash_loop" in str(w.frames[-10:]), WAIT_SECONDS)
        assert workers.deaths == 1 + TRIES
        await command(fleet.url, "c1", user_message("d", "and now?", params={"model": "demo/echo"}))
        await watcher.until(lambda w: w.messages[-1] == ("assistant", "You said: and now?"), WAIT_SECONDS)


def _refuses(frame: JsonObject, request_id: str) -> bool:
    return frame["type"] == "ack" and frame.get("client_request_id") == request_id and not frame.get("accepted", True)
