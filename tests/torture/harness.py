"""The processes under torture: a store, web and worker processes, and a proxy on every line between them.

Each process can be killed, stopped, continued, ended and started again. A proxy in front of the store and of each web
process keeps their addresses; a proxy from each process to the store keeps its faults over restarts. `faults.py`
decides when. The harness signals only processes that it started, and all of them end with the block. These members do
not use the fleet of `tests/support`, because a start or a kill of the store must not block the event loop that drives
all clients.
"""

import asyncio
import contextlib
import resource
import shutil
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from tests.support.server import Process
from tests.torture.proxy import Proxy
from threadcast.store.embedded.server_process import ServerProcess, find_binary, start_server

__all__ = ["Harness", "Member", "StoreMember", "open_harness", "store_binary"]

PERSISTENCE = ("--save", "", "--appendonly", "yes", "--appendfsync", "always")
"""The store must lose no answered write by kill -9; otherwise writes that the product lost could not be distinguished
from writes that the store lost."""

ORDERED_HASHES = ("--hash-max-listpack-entries", "1024", "--hash-max-listpack-value", "256")
"""Redis keeps the fields of a hash within these limits in the order in which they were written. Thus the judge learns
the order in which commands were accepted; one generation has at most 1,000 remembered request ids
(`Archive.accepted`)."""

START_TRIES = 20
"""Maximum starts of a process. A process that finds no store ends; faults last for seconds, so one of these starts
finds the store."""

FILES_WANTED = 16_384
"""Number of open files that this process needs. Each stream takes one socket of its reader, and two of the proxy."""

CALM_TRIES = 50
"""Maximum checks, in five seconds, for a working connection to the store before a start: a failed start costs a second
of CPU."""

DRAIN_SECONDS = 10.0
"""Seconds from SIGTERM until a process is killed: twice `limits.drain_seconds`."""

HERE = Path(__file__).parent

SETTINGS = f"""
[server]
app = "{HERE / "tools_app.py"}"
log_format = "json"

[models]
default = "demo/echo?rate=0"

[profiles.agent]
tools = ["count_once", "count_safe", "count_asked", "delegate", "linger", "open_file", "open_quickly"]

[tools.open_file]
policy = "client"
description = "Carried out by an editor."

[tools.open_quickly]
policy = "client"
description = "Carried out by an editor that is not always there."
timeout_seconds = 4

[limits]
streams_per_principal = 5000
"""


def store_binary(kind: str) -> Path:
    """Return the embedded server for `valkey`, and the Redis on the PATH for `redis7`. Raises LookupError when the
    server is not installed."""
    if kind == "valkey":
        return find_binary()
    found = shutil.which("redis-server")
    if found is None:
        raise LookupError("there is no redis-server on the PATH; install it, or use --store valkey")
    return Path(found)


class StoreMember:
    """The store. The store's socket keeps its path over all restarts."""

    kind = "store"

    def __init__(self, binary: Path, directory: Path) -> None:
        self.name = "store"
        self._binary = binary
        self._directory = directory
        self._server: ServerProcess | None = None
        self.is_up = False

    @property
    def server(self) -> ServerProcess:
        assert self._server is not None, "the store was never started"
        return self._server

    async def start(self) -> None:
        self._server = start_server(self._binary, self._directory, (*PERSISTENCE, *ORDERED_HASHES))
        await self._server.wait_ready()
        self.is_up = True

    async def kill(self) -> None:
        self.is_up = False
        self.server.signal(signal.SIGKILL)
        while self.server.is_alive:  # the next store must not start before the lock is free
            await asyncio.sleep(0.005)

    def stop(self) -> None:
        self.is_up = False
        self.server.signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self.server.signal(signal.SIGCONT)
        self.is_up = True

    def close(self) -> None:
        if self._server is not None:
            self._server.signal(signal.SIGCONT)
            self._server.stop_blocking()


class Member:
    """A web or worker process with its proxies. `is_up` is true while the process runs and is not stopped. `lives`
    counts its starts."""

    def __init__(self, kind: str, number: int, to_store: Proxy, to_me: Proxy | None, harness: "Harness") -> None:
        self.kind = kind
        self.name = f"{kind}-{number}"
        self.to_store = to_store
        self.to_me = to_me
        self.is_up = False
        self.lives = 0
        self.late_exits = 0
        self._harness = harness
        self._process: Process | None = None

    @property
    def log(self) -> Path:
        return self._harness.directory / "logs" / f"{self.name}.log"

    async def start(self) -> None:
        """Raises RuntimeError when the process cannot be started at all."""
        for _ in range(START_TRIES):
            for _ in range(CALM_TRIES):
                if not self.to_store.is_troubled and self._harness.store.is_up:
                    break
                await asyncio.sleep(0.1)
            process = Process(self._arguments(), self.log, self._environment())
            try:
                await process.ready()
            except (AssertionError, TimeoutError):
                await asyncio.to_thread(process.close)
                await asyncio.sleep(0.3)
                continue
            except BaseException:
                process.close()
                raise
            self._process = process
            self.lives += 1
            if self.to_me is not None:
                self.to_me.target = ("127.0.0.1", int(process.url.rpartition(":")[2].strip("/")))
            self.is_up = True
            return
        raise RuntimeError(f"{self.name} did not start; see {self.log}")

    def _arguments(self) -> list[str]:
        return [self.kind, "--config", str(self._harness.settings), *(["--port", "0"] if self.kind == "web" else [])]

    def _environment(self) -> dict[str, str]:
        return {
            "REDIS_URL": f"redis://127.0.0.1:{self.to_store.port}/0",
            "TORTURE_RUNS_FILE": str(self._harness.runs_file),
        }

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    async def kill(self) -> None:
        self.is_up = False
        if self._process is not None:
            self._process.send(signal.SIGKILL)
            await asyncio.to_thread(self._process.close)

    def stop(self) -> None:
        self.is_up = False
        if self._process is not None:
            self._process.send(signal.SIGSTOP)

    def go_on(self) -> None:
        if self._process is not None:
            self._process.send(signal.SIGCONT)
            self.is_up = True

    async def end(self) -> None:
        """Send SIGTERM; a process that does not end in time is killed, and counted."""
        self.is_up = False
        if self._process is None:
            return
        self._process.send(signal.SIGTERM)
        try:
            async with asyncio.timeout(DRAIN_SECONDS):
                await self._process.ended()
        except TimeoutError:
            self.late_exits += 1
            self._process.send(signal.SIGKILL)
        await asyncio.to_thread(self._process.close)

    def has_died(self) -> bool:
        """Return whether the process ended by itself."""
        return self.is_up and self._process is not None and not Path(f"/proc/{self._process.pid}/cmdline").exists()

    def close(self) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send(signal.SIGCONT)
            self._process.close()


class Harness:
    """All processes of a torture run. `directory` holds the store's files, the logs, and the file of tool runs."""

    def __init__(self, directory: Path, store: StoreMember) -> None:
        self.directory = directory
        self.store = store
        self.webs: list[Member] = []
        self.workers: list[Member] = []
        self.runs_file = directory / "runs"
        self.settings = directory / "threadcast.toml"

    @property
    def members(self) -> list[Member]:
        return [*self.webs, *self.workers]

    @property
    def proxies(self) -> list[Proxy]:
        return [proxy for member in self.members for proxy in (member.to_store, member.to_me) if proxy is not None]

    @property
    def web_ports(self) -> list[int]:
        """Return the ports where clients find the web processes, also after restarts."""
        return [web.to_me.port for web in self.webs if web.to_me is not None]


@asynccontextmanager
async def open_harness(directory: Path, binary: Path, *, webs: int, workers: int) -> AsyncIterator[Harness]:
    """Start all processes and wait until they are ready; end them with the block."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(FILES_WANTED, most), most))
    (directory / "logs").mkdir(parents=True, exist_ok=True)
    store = StoreMember(binary, directory / "store")
    harness = Harness(directory, store)
    harness.settings.write_text(SETTINGS)
    async with AsyncExitStack() as stack:
        stack.callback(store.close)
        await store.start()
        for kind, count in (("web", webs), ("worker", workers)):
            for number in range(1, count + 1):
                to_store = Proxy(f"{kind}-{number} > store", store.server.path)
                await stack.enter_async_context(to_store)
                to_me = await stack.enter_async_context(Proxy(f"client > web-{number}")) if kind == "web" else None
                member = Member(kind, number, to_store, to_me, harness)
                stack.callback(member.close)
                (harness.webs if kind == "web" else harness.workers).append(member)
        async with asyncio.TaskGroup() as tasks:
            for member in harness.members:
                tasks.create_task(member.start())
        yield harness
        async with asyncio.TaskGroup() as tasks:  # an orderly end would take seconds; it is tested in `tests/deploys`
            for member in harness.members:
                tasks.create_task(member.kill())
