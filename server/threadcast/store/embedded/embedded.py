"""The embedded store: a private Valkey child process for `threadcast serve` and the tests.

This module sends only PING and INFO to the server; `redis/store.py` connects to the URL. Callers enter `EmbeddedStore`
first and exit it last, so that the server outlives all code that uses it. Each data directory has at most one
process of `threadcast serve`, and one process of its store's server. After a kill -9 of the former, the next start is
not blocked.

The data directory contains `serve.lock`, which the serving process locks and which contains its address. The
subdirectory `store/` contains the files of the server: `store.lock` (locked by the server), `socket`, `store.log`, and
the append-only file.
"""

import contextlib
import fcntl
import json
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType

import anyio
import anyio.to_thread
import structlog

from threadcast.base.forks import close_in_children
from threadcast.base.machine_memory import machine_bytes
from threadcast.store.embedded.repair import Damaged, mend_end, read_manifest
from threadcast.store.embedded.server_process import (
    POLL_SECONDS,
    EndedAtStart,
    ServerProcess,
    ask,
    find_binary,
    lock_is_free,
    socket_path,
    start_server,
)
from threadcast_protocol.wire.errors import Conflict, Unavailable

__all__ = ["MEMORY_SHARE", "PERSISTENT", "VOLATILE", "EmbeddedStore", "locked_for_serving", "store_max_bytes"]

PERSISTENT: Sequence[str] = (
    *("--save", "", "--appendonly", "yes", "--appendfsync", "everysec"),
    *("--aof-load-truncated", "no"),
)
"""Options of the server. Only the append-only file is written, since it contains everything that a snapshot file would
contain. With everysec a power loss may lose the last 1–2 s, as promised (DESIGN §14); a kill -9 of the server process
lost nothing in our tests. `repair.py` cuts off a damaged end, keeps a copy, and the cut is logged. The server itself
would cut off some damaged ends silently."""

VOLATILE: Sequence[str] = ("--save", "", "--appendonly", "no")

MEMORY_SHARE = 0.5
"""The share of the memory that the store may fill. While the store rewrites its file, the memory contains a second copy
of each page that changes meanwhile, in the worst case of all pages. The serving process and the system need the rest of
the memory."""

LEFTOVER_TIMEOUT_SECONDS = 5.0 if sys.platform == "linux" else 0.0
"""Seconds that the child of a killed parent may take to write its buffer and end. Only Linux sends such a child a
signal to end."""

RESTART_PAUSE_SECONDS = 1.0
"""Seconds between restarts of a child that died, so that a full disk does not cause a busy loop."""

_log = structlog.get_logger(__name__)


def store_max_bytes(wanted_bytes: int = 0) -> int:
    """Return the `maxmemory` of the store in bytes: `wanted_bytes`, or `MEMORY_SHARE` of the memory if `wanted_bytes`
    is 0."""
    return wanted_bytes or int(machine_bytes() * MEMORY_SHARE)


class EmbeddedStore:
    """Runs the embedded server while this async context manager is open. Enter it once, on the main thread (see
    `start_server`). `url` is valid inside."""

    def __init__(self, data_dir: Path, *, memory: bool = False, max_bytes: int = 0) -> None:
        """With `memory`, nothing is kept on disk, and `data_dir` is not used. `max_bytes` is the memory that the store
        may fill; 0 means a share of the machine's memory. A full store refuses writes and discards nothing."""
        self._memory = memory
        self._max_bytes = store_max_bytes(max_bytes)
        self._data_dir = data_dir.absolute()
        self._serve_lock: int | None = None
        self._server: ServerProcess | None = None
        self._exit = contextlib.ExitStack()

    @property
    def url(self) -> str:
        return self.server.url

    @property
    def server(self) -> ServerProcess:
        if self._server is None:
            raise Unavailable("the embedded store is not open")
        return self._server

    async def __aenter__(self) -> "EmbeddedStore":
        """Start the server. Raises Conflict when a process serves this directory already, Unavailable when no server
        starts."""
        with contextlib.ExitStack() as stack:
            if self._memory:
                directory = Path(tempfile.mkdtemp(prefix="threadcast-"))
                stack.callback(shutil.rmtree, directory, ignore_errors=True)
            else:
                lock = self._serve_lock = stack.enter_context(locked_for_serving(self._data_dir))
                stack.callback(close_in_children(lambda: [lock]))
                directory = self._data_dir / "store"
            self._server = await self._start(directory)
            self._exit = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, wrong: BaseException | None, trace: TracebackType | None
    ) -> None:
        # The stop is shielded, because the server must end even after a second Ctrl-C. `stop` has deadlines of its own.
        with anyio.CancelScope(shield=True), self._exit:
            self._serve_lock = None
            await self.server.stop()
            if self.server.path.parent != self.server.directory:
                shutil.rmtree(self.server.path.parent, ignore_errors=True)

    def announce(self, url: str) -> None:
        """Write the address of this process into the lock file, so that the error of a second `serve` can name the
        address."""
        if self._serve_lock is not None:
            _write_lock(self._serve_lock, url)

    async def supervise(self) -> None:
        """Start the child again when it dies. Never returns; run it in the serving process's task group."""
        while True:
            await anyio.sleep(RESTART_PAUSE_SECONDS)
            if self.server.is_alive:
                continue
            _log.warning("store.died", pid=self.server.pid)
            try:
                self._server = await self._start(self.server.directory)
            except Unavailable as wrong:
                _log.error("store.restart_failed", error=wrong.message)
            else:
                _log.info("store.restarted", pid=self.server.pid)

    async def _start(self, directory: Path) -> ServerProcess:
        leftover = await _wait_for_leftover(directory)
        if leftover is not None:
            return leftover
        if self._memory:
            return await self._begin(directory, VOLATILE)
        read_manifest(directory)  # raises Damaged if the manifest is lost, because the server would then start empty
        try:
            return await self._begin(directory, PERSISTENT)
        except EndedAtStart as wrong:
            await anyio.to_thread.run_sync(_mend, directory, wrong)
        return await self._begin(directory, PERSISTENT)

    async def _begin(self, directory: Path, arguments: Sequence[str]) -> ServerProcess:
        server = start_server(find_binary(), directory, (*arguments, "--maxmemory", str(self._max_bytes)))
        try:
            await server.wait_ready()
        except BaseException:
            server.stop_blocking()
            raise
        return server


def _mend(directory: Path, wrong: EndedAtStart) -> None:
    """Repair the end of the file. Call this function in a thread, because it may read gigabytes. Raises Unavailable
    when the failed start has another cause."""
    try:
        cut = mend_end(directory)
    except OSError as trouble:
        raise Unavailable(f"the embedded store cannot be repaired: {trouble}") from trouble
    if cut is not None:
        _log.warning("store.repaired", text=str(cut), cut_bytes=cut.bytes_count, copy=str(cut.copy))
    elif any(word in wrong.words for word in ("append only file", "AOF", "RDB")):
        raise Damaged(directory, wrong.words.partition(": make a backup")[0].rpartition(" # ")[2])
    else:
        raise wrong


@contextlib.contextmanager
def locked_for_serving(data_dir: Path) -> Iterator[int]:
    """Keep other processes from serving this directory during the block; yields the descriptor of the lock file. Raises
    Conflict when another process serves the directory."""
    (data_dir / "store").mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = os.open(data_dir / "serve.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            with contextlib.suppress(ValueError, OSError):  # the other process may be writing the file at this moment
                other = json.loads(os.pread(lock, 4_096, 0))
                where = f"at {other['url']} " if other.get("url") else ""
                raise Conflict(f"{data_dir} is already served {where}(process {other['pid']})") from None
            raise Conflict(f"{data_dir} is already served by another process") from None
        _write_lock(lock, "")
        yield lock
    finally:
        os.close(lock)


def _write_lock(lock: int, url: str) -> None:
    text = json.dumps({"url": url, "pid": os.getpid()}).encode()
    os.ftruncate(lock, 0)
    os.pwrite(lock, text, 0)


async def _wait_for_leftover(directory: Path) -> ServerProcess | None:
    """Wait until the server of a killed parent ends.

    On Linux, that server is about to end, so it must not be used meanwhile. On other systems, no signal ends that
    server, so this process uses it. Returns the running server, or None when no server runs any more.
    """
    deadline = time.monotonic() + LEFTOVER_TIMEOUT_SECONDS
    while not lock_is_free(directory):
        if time.monotonic() > deadline:
            break
        await anyio.sleep(POLL_SECONDS)
    else:
        return None
    path = socket_path(directory)
    pid = re.search(rb"^process_id:(\d+)", ask(path, b"INFO server"), re.MULTILINE)
    if pid is None:
        raise Unavailable(f"a store process still holds {directory} and does not answer; wait until it ends, or end it")
    return ServerProcess(directory, path, None, int(pid[1]))
