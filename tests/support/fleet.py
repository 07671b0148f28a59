"""Runs web processes and workers over one store, as an operator does: tests start, find, kill and replace them."""

import signal
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import anyio
import redis

from tests.support.server import DEADLINE_SECONDS, Process, logged, start
from tests.support.store import StoreServer, running_store
from threadcast.store.redis.keys import Keys
from threadcast_protocol.wire.messages import JsonObject

__all__ = ["FAST", "Fleet", "fleet_on_new_store", "running_fleet"]

FAST = {"LEASE_SECONDS": "1.0", "BEAT_SECONDS": "0.3", "SWEEP_SECONDS": "0.2"}
"""Limits with a shorter lease than the default, so that another worker soon takes over the chats of a dead worker."""


class Fleet:
    """Processes over one store that share a data directory, limits and options.

    `webs` and `workers` are the processes that `add_web` and `add_worker` have started. All processes write to the
    file `log`, except those that were started with a log of their own.
    """

    def __init__(
        self, stack: ExitStack, store_url: str, directory: Path, *options: str, limits: Mapping[str, str] | None = None
    ) -> None:
        """Start nothing yet.

        Args:
            stack: Ends each process.
            store_url: The REDIS_URL of all processes.
            directory: Directory of the logs and of the data directory.
            options: The end of each command line, such as `--config FILE`.
            limits: Settings such as {"DRAIN_SECONDS": "0.5"} for all processes; other limits keep their defaults.
        """
        self.directory = directory
        self.data = directory / "data"
        self.log = directory / "log"
        self.webs: list[Process] = []
        self.workers: list[Process] = []
        self.store: StoreServer
        self._limits = dict(limits or {})
        self._options = options
        self._stack = stack
        self._started: list[Process] = []
        self._store_url = store_url

    async def open(self, workers: int = 2) -> None:
        """Start a web process and this number of workers, and wait until all are ready."""
        self.webs = [self.start("web", "--port", "0")]
        self.workers = [self.start("worker") for _ in range(workers)]
        for process in (*self.webs, *self.workers):
            await process.ready()

    @property
    def url(self) -> str:
        """The address of the first web process."""
        return self.webs[0].url

    async def add_web(self, *arguments: str, limits: Mapping[str, str] | None = None, port: int = 0) -> Process:
        """Start a web process and wait until it is ready."""
        process = await self.start("web", "--port", str(port), *arguments, limits=limits).ready()
        self.webs.append(process)
        return process

    async def add_worker(self, app: Path | None = None, limits: Mapping[str, str] | None = None) -> Process:
        """Start a worker and wait until it is ready to own chats."""
        named = ["--app", str(app)] if app is not None else []
        process = await self.start("worker", *named, limits=limits).ready()
        self.workers.append(process)
        return process

    def start(
        self,
        *arguments: str,
        limits: Mapping[str, str] | None = None,
        metrics_port: int = 0,
        store_url: str = "",
        log: str = "log",
    ) -> Process:
        """Start a process without waiting for it.

        Args:
            arguments: The command and its options; the fleet appends its own `options`.
            limits: Limits of this process, in addition to the fleet's limits.
            metrics_port: Port on which a worker serves probes and metrics; 0 to serve none.
            store_url: REDIS_URL of this process, if it differs from the fleet's.
            log: The name of the log file.
        """
        named = {f"THREADCAST_LIMITS__{name}": value for name, value in {**self._limits, **(limits or {})}.items()}
        environment = {
            "REDIS_URL": store_url or self._store_url,
            "THREADCAST_STORE__DATA_DIR": str(self.data),
            "THREADCAST_SERVER__METRICS_PORT": str(metrics_port),
            **named,
        }
        opened = start(*arguments, *self._options, log=self.directory / log, environment=environment)
        process = self._stack.enter_context(opened)
        self._started.append(process)
        return process

    def end(self) -> None:
        """Tell all running processes at the same time to end; the exit stack then waits for each process."""
        for process in self._started:
            if not process.has_ended:
                process.send(signal.SIGTERM)

    def owner(self, chat_id: str) -> Process | None:
        """Return the worker that holds the chat's lease now."""
        keys = Keys(16)
        with redis.Redis.from_url(self._store_url) as client:
            name = client.hget(keys.own(keys.bucket_of(chat_id)), chat_id)
        if not isinstance(name, bytes):
            return None
        pid = int(name.decode().split("-")[-2])  # a worker's name holds its process id
        return next((worker for worker in self.workers if worker.pid == pid), None)

    def kill_owner(self, chat_id: str) -> bool:
        """Kill the chat's owner by kill -9. Returns False when the chat has no owner at this moment."""
        owner = self.owner(chat_id)
        if owner is None:
            return False
        owner.kill()
        self.workers.remove(owner)
        return True

    def logged(self, event: str) -> list[JsonObject]:
        """Return the lines with that event name from `log`."""
        return logged(self.log, event)

    async def until_logged(self, event: str, count: int = 1) -> None:
        """Wait until `log` has this number of lines with that event name."""
        with anyio.fail_after(DEADLINE_SECONDS):
            while len(self.logged(event)) < count:
                await anyio.sleep(0.02)


@contextmanager
def running_fleet(
    directory: Path, store_url: str, *options: str, limits: Mapping[str, str] | None = None
) -> Iterator[Fleet]:
    """Run a fleet until the block ends, which also ends all its processes. The arguments are those of `Fleet`."""
    with ExitStack() as stack:
        fleet = Fleet(stack, store_url, directory, *options, limits=limits)
        try:
            yield fleet
        finally:
            fleet.end()


@contextmanager
def fleet_on_new_store(directory: Path, *options: str, limits: Mapping[str, str] | None = None) -> Iterator[Fleet]:
    """Run a fleet and a new private store, `fleet.store`, until the block ends."""
    with (
        running_store(directory / "store") as store,
        running_fleet(directory, store.url, *options, limits=limits) as fleet,
    ):
        fleet.store = store
        yield fleet
