"""A command, and a tool, that end every worker that touches them: given up after three tries, and seen by all.

Real workers really die. The command's client reads a refusal in the stream, the operator a metric, a line in `doctor`
and the command itself in `threadcast dead-letters`; the chat goes on with the next command.
"""

import json
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

import anyio
import pytest

from protocol.messages import JsonObject
from server.store.embedded import VOLATILE
from tests.integration.harness import ROOT, Process, command, start, user_message, watching
from tests.resources.measures import started_store

pytestmark = [pytest.mark.anyio, pytest.mark.slow(15)]

APP = Path(__file__).with_name("greedy_tools.py")
FAST = {
    "THREADCAST_LIMITS__LEASE_SECONDS": "1.0",
    "THREADCAST_LIMITS__BEAT_SECONDS": "0.3",
    "THREADCAST_LIMITS__SWEEP_SECONDS": "0.2",
}
TRIES = 3
"""Takeovers without progress; the first owner makes one death more."""

WAIT_SECONDS = 60.0
"""For four workers to start and die, one after the other, on a busy machine."""


class Workers:
    """A worker at any time: whoever dies is replaced, as a supervisor does. `deaths` counts."""

    def __init__(self, environment: dict[str, str], log: Path, stack: ExitStack) -> None:
        self.deaths = 0
        self._environment = environment
        self._log = log
        self._stack = stack

    def _start(self) -> Process:
        return self._stack.enter_context(
            start("worker", "--app", str(APP), log=self._log, environment=self._environment)
        )

    async def supervise(self) -> None:
        at_work = [self._start(), self._start()]  # the next one is warm while one dies
        while True:
            await anyio.sleep(0.05)
            for dead in [each for each in at_work if each.has_ended]:
                self.deaths += 1
                at_work.remove(dead)
                at_work.append(self._start())


@asynccontextmanager
async def house(tmp_path: Path) -> AsyncIterator[tuple[Process, Workers, dict[str, str]]]:
    with ExitStack() as stack:
        store = stack.enter_context(started_store(tmp_path / "store", tuple(VOLATILE)))
        environment = {"REDIS_URL": store.url, "THREADCAST_STORE__DATA_DIR": str(tmp_path / "data"), **FAST}
        web = stack.enter_context(start("web", "--port", "0", log=tmp_path / "web", environment=environment))
        workers = Workers(environment, tmp_path / "workers", stack)
        await web.ready()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(workers.supervise)
            yield web, workers, environment
            tasks.cancel_scope.cancel()


def operator(environment: dict[str, str], directory: Path, *arguments: str) -> str:
    asked = subprocess.run(
        [sys.executable, "-m", "server.cli", *arguments],
        cwd=directory,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", **environment},
        capture_output=True,
        timeout=WAIT_SECONDS,
        check=False,
    )
    return asked.stdout.decode() + asked.stderr.decode()


async def test_a_deadly_command_is_given_up_shown_to_its_client_and_kept_for_the_operator(tmp_path: Path) -> None:
    async with house(tmp_path) as (web, workers, environment), watching(web.url, "c1") as watcher:
        assert "no command was given up" in operator(environment, tmp_path, "dead-letters")
        await command(web.url, "c1", user_message("ok", "hello", params={"model": "demo/echo"}))
        await watcher.at_rest(seconds=WAIT_SECONDS)
        posted = await command(web.url, "c1", user_message("bad", "this is poison"))
        assert posted.status_code == 202
        await watcher.until(lambda w: any(_refuses(frame, "bad") for frame in w.frames), WAIT_SECONDS)
        (refusal,) = [frame for frame in watcher.frames if _refuses(frame, "bad")]
        assert refusal["result"]["code"] == "poison"
        assert workers.deaths == TRIES
        await command(web.url, "c1", user_message("next", "still there?", params={"model": "demo/echo"}))
        await watcher.until(lambda w: w.messages[-1] == ("assistant", "You said: still there?"), WAIT_SECONDS)
        letters = operator(environment, tmp_path, "dead-letters", "--json").splitlines()
        (letter,) = [json.loads(line) for line in letters]
        assert (letter["chat_id"], letter["request_id"], letter["reason"]) == ("c1", "bad", "poison")
        assert "this is poison" in letter["body"]
        assert "commands given up: 1" in operator(environment, tmp_path, "dead-letters")
        assert "commands given up: 1; `threadcast dead-letters`" in operator(environment, tmp_path, "doctor")
        assert "command.poisoned" in (tmp_path / "workers").read_text()


async def test_a_run_that_kills_its_workers_is_ended_and_its_chat_goes_on(tmp_path: Path) -> None:
    async with house(tmp_path) as (web, workers, _), watching(web.url, "c1") as watcher:
        tools = {"model": "demo/tools"}
        await command(web.url, "c1", user_message("a", "call kills_its_worker {}", params=tools))
        await watcher.at_rest(seconds=WAIT_SECONDS)
        assert workers.deaths == 1, "a tool that may run once is not tried again"
        assert [str(f["status"]) for f in watcher.frames if f["type"] == "tool_status"] == [
            "running",
            "outcome_unknown",
        ]
        await command(web.url, "c1", user_message("b", "still there?", params={"model": "demo/echo"}))
        await watcher.until(lambda w: w.messages[-1] == ("assistant", "You said: still there?"), WAIT_SECONDS)
        again = "call kills_its_worker_again {}"
        await command(web.url, "c1", user_message("c", again, params=tools))
        await watcher.until(lambda w: "crash_loop" in str(w.frames[-10:]), WAIT_SECONDS)
        assert workers.deaths == 1 + TRIES
        await command(web.url, "c1", user_message("d", "and now?", params={"model": "demo/echo"}))
        await watcher.until(lambda w: w.messages[-1] == ("assistant", "You said: and now?"), WAIT_SECONDS)


def _refuses(frame: JsonObject, request_id: str) -> bool:
    return frame["type"] == "ack" and frame.get("client_request_id") == request_id and not frame.get("accepted", True)
