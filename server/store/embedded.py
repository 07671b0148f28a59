"""The embedded store: a private Valkey child whose life is ours, for `threadcast serve` and the tests.

It does not speak Redis beyond PING; it gives a URL to `redis_store.py`. Entered first and left last, so that the store
outlives all who use it. The rule: one serving process a data directory, one server process a data directory, and no
orphan. Whoever dies by kill -9 leaves nothing that blocks the next start.

Files in the data directory: `serve.lock` (held by the serving process; says where it listens), and below `store/` the
server's own: `store.lock` (held by the server), `socket`, `store.log`, the append-only file.
"""

import contextlib
import fcntl
import json
import os
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

from protocol.errors import Conflict, Unavailable
from server.forks import close_in_children
from server.store.repair import Damaged, check_manifest, mend_end
from server.store.server_process import (
    POLL_SECONDS,
    EndedAtStart,
    ServerProcess,
    ask,
    find_binary,
    lock_is_free,
    socket_path,
    start_server,
)

__all__ = ["PERSISTENT", "VOLATILE", "EmbeddedStore", "locked_for_serving"]

PERSISTENT: Sequence[str] = (
    *("--save", "", "--appendonly", "yes", "--appendfsync", "everysec"),
    *("--aof-load-truncated", "no"),
)
"""The append-only file alone: it holds all that a snapshot file would. everysec may lose the last 1–2 s on power loss,
which is what we promise (DESIGN §14); a kill -9 of the server process lost nothing with this Valkey. A bad end of the
file is cut off by `repair.py`, which keeps a copy and says so; the server would cut some of them off without a word."""

VOLATILE: Sequence[str] = ("--save", "", "--appendonly", "no")

LEFTOVER_PATIENCE_SECONDS = 5.0 if sys.platform == "linux" else 0.0
"""How long a child of a killed parent may take to write out and end. Only Linux has told it to."""

RESTART_PAUSE_SECONDS = 1.0
"""Between restarts of a child that died: enough not to spin on a full disk."""

_log = structlog.get_logger(__name__)


class EmbeddedStore:
    """An async context manager, entered once, on the main thread (see `start_server`). `url` is good inside."""

    def __init__(self, data_dir: Path, *, memory: bool = False) -> None:
        """`memory`: nothing is kept and `data_dir` is not touched."""
        self._memory = memory
        self._data_dir = data_dir.absolute()
        self._serve_lock: int | None = None
        self._forget_lock = _nothing
        self._server: ServerProcess | None = None
        self._scratch: Path | None = None

    @property
    def url(self) -> str:
        return self.server.url

    @property
    def server(self) -> ServerProcess:
        if self._server is None:
            raise Unavailable("the embedded store is not open")
        return self._server

    async def __aenter__(self) -> "EmbeddedStore":
        """Raises Conflict when somebody serves this directory already, Unavailable when no server can be started."""
        if self._memory:
            self._scratch = Path(tempfile.mkdtemp(prefix="threadcast-"))
            directory = self._scratch
        else:
            lock = self._serve_lock = _lock_for_serving(self._data_dir)
            self._forget_lock = close_in_children(lambda: [lock])
            directory = self._data_dir / "store"
        try:
            self._server = await self._start(directory)
        except BaseException:
            self._let_go()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, wrong: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Shielded: a second Ctrl-C must not leave the server behind. `stop` has deadlines of its own.
        with anyio.CancelScope(shield=True):
            await self.server.stop()
        self._let_go()

    def announce(self, url: str) -> None:
        """Write where we listen, so that a second `serve` can be sent there."""
        if self._serve_lock is not None:
            _write_lock(self._serve_lock, url)

    async def supervise(self) -> None:
        """Start the child again when it dies. Run it in the task group of what is served; it never returns."""
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
        check_manifest(directory)
        try:
            return await self._begin(directory, PERSISTENT)
        except EndedAtStart as wrong:
            await anyio.to_thread.run_sync(_mend, directory, wrong)
        return await self._begin(directory, PERSISTENT)

    async def _begin(self, directory: Path, arguments: Sequence[str]) -> ServerProcess:
        server = start_server(find_binary(), directory, arguments)
        try:
            await server.wait_ready()
        except BaseException:
            server.stop_blocking()
            raise
        return server

    def _let_go(self) -> None:
        if self._server is not None and self._server.path.parent != self._server.directory:
            shutil.rmtree(self._server.path.parent, ignore_errors=True)
        if self._scratch is not None:
            shutil.rmtree(self._scratch, ignore_errors=True)
        if self._serve_lock is not None:
            self._forget_lock()
            os.close(self._serve_lock)
            self._serve_lock = None


def _mend(directory: Path, wrong: EndedAtStart) -> None:
    """Repair the end of the file in a thread, since it may read gigabytes. Raises Unavailable when something else is
    wrong."""
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


def _nothing() -> None:
    return None


@contextlib.contextmanager
def locked_for_serving(data_dir: Path) -> Iterator[None]:
    """Keep other processes from serving this directory during the block. Raises Conflict when one serves it already."""
    lock = _lock_for_serving(data_dir)
    try:
        yield
    finally:
        os.close(lock)


def _lock_for_serving(data_dir: Path) -> int:
    (data_dir / "store").mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = os.open(data_dir / "serve.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        with contextlib.suppress(ValueError, OSError):  # the other one may be writing it just now
            other = json.loads(os.pread(lock, 4_096, 0))
            os.close(lock)
            where = f"at {other['url']} " if other.get("url") else ""
            raise Conflict(f"{data_dir} is already served {where}(process {other['pid']})") from None
        raise Conflict(f"{data_dir} is already served by another process") from None
    _write_lock(lock, "")
    return lock


def _write_lock(lock: int, url: str) -> None:
    text = json.dumps({"url": url, "pid": os.getpid()}).encode()
    os.ftruncate(lock, 0)
    os.pwrite(lock, text, 0)


async def _wait_for_leftover(directory: Path) -> ServerProcess | None:
    """A server of a killed parent: on Linux it is about to end, and must not be attached to while it does.

    Elsewhere nobody told it to end, so it is taken over as it is. None: none lives there any more.
    """
    deadline = time.monotonic() + LEFTOVER_PATIENCE_SECONDS
    while not lock_is_free(directory):
        if time.monotonic() > deadline:
            break
        await anyio.sleep(POLL_SECONDS)
    else:
        return None
    path = socket_path(directory)
    pid = _pid_of(ask(path, b"INFO server"))
    if pid is None:
        raise Unavailable(f"a store process still holds {directory} and does not answer; wait until it ends, or end it")
    return ServerProcess(directory, path, None, pid)


def _pid_of(info: bytes) -> int | None:
    for line in info.splitlines():
        if line.startswith(b"process_id:"):
            return int(line.partition(b":")[2])
    return None
