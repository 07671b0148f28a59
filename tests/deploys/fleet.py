"""Web processes and workers over one store, as an operator runs them: started, asked who owns what, replaced.

A `TimedWatcher` is a reader that also remembers when each event came and in which epoch, so that the gap which a change
of owner leaves can be measured where it is seen: at a reader that stayed. Used by the tests beside it and by
`bench/takeover.py`, which print and bound the same measure. Every process is started here and ended by its stack.
"""

import json
import signal
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path

import redis

from protocol.sse import EventFrame
from server.store.keys import Keys
from server.store.server_process import ServerProcess, find_binary
from tests.integration.harness import Process, Watcher, command, user_message
from tests.integration.harness import start as start_process
from tests.integration.store_fixtures import running_server

__all__ = ["APPS", "Fleet", "TimedWatcher", "ask", "logged", "opened_fleet"]

APPS = Path(__file__).parents[1] / "integration"
"""Where the files of tools for tests lie."""


class Fleet:
    """All processes share `store` and write into one log file."""

    def __init__(self, stack: ExitStack, store: ServerProcess, log: Path) -> None:
        self.store = store
        self.log = log
        self.workers: list[Process] = []
        self._started: list[Process] = []
        self._stack = stack
        self._redis = stack.enter_context(redis.Redis.from_url(store.url))

    async def web(self, *arguments: str, limits: Mapping[str, str] | None = None, port: int = 0) -> Process:
        process = self.start("web", "--port", str(port), *arguments, limits=limits)
        return await process.ready()

    async def worker(self, app: Path | None = None, limits: Mapping[str, str] | None = None) -> Process:
        """One more, which may own chats from now on."""
        named = ["--app", str(app)] if app is not None else []
        process = await self.start("worker", *named, limits=limits).ready()
        self.workers.append(process)
        return process

    def start(self, *arguments: str, limits: Mapping[str, str] | None = None, metrics_port: int = 0) -> Process:
        """Not waited for. `limits`: such as {"DRAIN_SECONDS": "0.5"}; all others are the defaults."""
        named = {f"THREADCAST_LIMITS__{name}": value for name, value in (limits or {}).items()}
        named["THREADCAST_SERVER__METRICS_PORT"] = str(metrics_port)
        environment = {
            "REDIS_URL": self.store.url,
            "THREADCAST_STORE__DATA_DIR": str(self.log.parent / "data"),
            **named,
        }
        process = self._stack.enter_context(start_process(*arguments, log=self.log, environment=environment))
        self._started.append(process)
        return process

    def end(self) -> None:
        """Tell all that still run to end, at the same time; the stack waits for each."""
        for process in self._started:
            if not process.has_ended:
                process.send(signal.SIGTERM)

    def owner(self, chat_id: str) -> Process | None:
        """The worker that holds the chat now; its process id is part of its name."""
        keys = Keys(16)
        name = self._redis.hget(keys.own(keys.bucket_of(chat_id)), chat_id)
        if not isinstance(name, bytes):
            return None
        pid = int(name.decode().split("-")[-2])
        return next((worker for worker in self.workers if worker.pid == pid), None)


def logged(fleet: Fleet, event: str) -> list[dict[str, object]]:
    """The lines of that name in the log of all processes."""
    lines = (json.loads(line) for line in fleet.log.read_text().splitlines() if line.startswith("{"))
    return [line for line in lines if line["event"] == event]


def opened_fleet(stack: ExitStack, directory: Path) -> Fleet:
    """A fleet over a fresh private store, both ended with the stack."""
    store = stack.enter_context(contextmanager(running_server)(find_binary(), directory))
    return Fleet(stack, store, directory / "log")


class TimedWatcher(Watcher):
    """`came`: for each event (not snapshots) its epoch, its type and when it came, by the monotonic clock."""

    def __init__(self, chat_id: str) -> None:
        super().__init__(chat_id)
        self.came: list[tuple[str, str, float]] = []

    def take(self, frame: EventFrame) -> None:
        self.came.append((frame.last_event_id.partition("-")[0], "", time.monotonic()))
        super().take(frame)
        self.came[-1] = (self.came[-1][0], str(self.frames[-1]["type"]), self.came[-1][2])

    def gaps(self) -> list[float]:
        """Seconds between the last event of an owner and the first of the next, for each change of owner seen."""
        events = [(epoch, at) for epoch, kind, at in self.came if kind != "snapshot"]
        return [later - at for (epoch, at), (next_, later) in pairwise(events) if epoch != next_]

    def first_after(self, moment: float, kinds: Sequence[str] = ()) -> float | None:
        """When the first event after `moment` came, of one of these types; None: none yet."""
        return next((at for _, kind, at in self.came if at > moment and (not kinds or kind in kinds)), None)


async def ask(url: str, chat_id: str, text: str, model: str, request_id: str = "a") -> None:
    """A question to that model, which must be accepted."""
    answer = await command(url, chat_id, user_message(request_id, text, params={"model": model}))
    assert answer.status_code == 202, answer.text
