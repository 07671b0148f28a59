"""The interface of a peer: how it is started, asked, read and stopped, and how its client shows text.

A module for each peer implements the interface, following the peer's documentation. `load.py` and `trials.py` use it. A
missing ability of a peer is shown by None, a flag or `Cannot`; our code never replaces it.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

import anyio
import httpx2
import msgspec
from tests.ports import free_port

from bench.processes import tree
from threadcast.store.embedded.server_process import find_binary

__all__ = ["APPS", "INSTALLED", "Cannot", "Frame", "Peer", "Program", "Request", "json_request"]

ROOT = Path(__file__).resolve().parents[2]
INSTALLED = ROOT / ".peers"
APPS = Path(__file__).parent / "apps"

START_SECONDS = 90.0
"""Time limit of a start. The imports of the slowest peer take ten seconds on an idle machine."""

STOP_SECONDS = 5.0

_CHILD = ROOT / "server/threadcast/store/embedded/child.py"
"""Ends the started processes when this process ends, even if it crashes."""

_STORES = re.compile("valkey|redis|postgres")


class Cannot(Exception):
    """The peer lacks an ability or is not installed. The message says why."""


class Request(msgspec.Struct, frozen=True):
    """One HTTP request, for raw sockets and for a client."""

    method: str
    path: str
    headers: dict[str, str] = {}
    body: bytes = b""

    def wire(self, port: int) -> bytes:
        headers = {"Host": f"127.0.0.1:{port}", "Accept": "text/event-stream", **self.headers}
        if self.body:
            headers["Content-Length"] = str(len(self.body))
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        return f"{self.method} {self.path} HTTP/1.1\r\n{lines}\r\n".encode() + self.body


def json_request(method: str, path: str, body: object, **headers: str) -> Request:
    return Request(method, path, {"Content-Type": "application/json", **headers}, json.dumps(body).encode())


class Frame(msgspec.Struct, frozen=True):
    """One server-sent event."""

    data: str = ""
    event: str = ""
    id: str = ""

    def json(self) -> dict[str, object]:
        """The JSON object in the data; {} for other data."""
        try:
            return msgspec.json.decode(self.data, type=dict[str, object])
        except msgspec.MsgspecError:
            return {}


class Program:
    """A started process, its descendants, and its log."""

    def __init__(self, command: Sequence[str | Path], directory: Path, environment: Mapping[str, str]) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.log = directory / "log"
        program = shutil.which(command[0])
        if program is None:
            raise Cannot(f"there is no {command[0]}")
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("OPENAI_", "THREADCAST_", "REDIS_"))}
        with self.log.open("ab") as log:
            self._popen = subprocess.Popen(
                [sys.executable, "-I", "-S", _CHILD, str(os.getpid()), *map(str, [program, *command[1:]])],
                cwd=directory,
                env={**clean, **environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._popen.pid

    async def answers(self, url: str) -> None:
        """Wait until the server answers HTTP. Raises Cannot with the end of its log if it ends or does not answer."""
        deadline = time.monotonic() + START_SECONDS
        async with httpx2.AsyncClient(timeout=2) as client:
            while time.monotonic() < deadline and self._popen.poll() is None:
                try:
                    if (await client.get(url)).status_code < 500:
                        return
                except httpx2.TransportError:
                    pass
                await anyio.sleep(0.05)
        raise Cannot(f"did not start: {self.log.read_text(errors='replace')[-600:]}")

    def kill(self) -> None:
        """Send kill -9 to the process and all its descendants."""
        for pid in tree(self.pid):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self._popen.wait(STOP_SECONDS)

    def close(self) -> None:
        if self._popen.poll() is None:
            self._popen.terminate()
            try:
                self._popen.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self.kill()


class Peer(ABC):
    """A measured server with its port and the directory of its data."""

    name: ClassVar[str]
    """The name in the keys of figures."""
    version: str = ""
    begins_by_reading: ClassVar[bool] = False
    """Whether the request that starts the answer is also the stream of its first reader."""
    opens_first: ClassVar[bool] = False
    """Whether readers can connect before the answer is requested."""
    needs_store: ClassVar[bool] = False
    """Whether a Valkey with an append-only file is started for the peer."""
    most_readers: ClassVar[int] = 1_000
    """The greatest number of readers of one answer."""

    def __init__(self, directory: Path, model_url: str) -> None:
        self.directory = directory
        self.model_url = model_url
        self.port = free_port()
        self.store_port = free_port()
        self._server: Program | None = None
        self._store: Program | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @abstractmethod
    def command(self) -> Sequence[str | Path]:
        """Return the command of a server that listens on `port` and asks the model at `model_url`. Raises Cannot if the
        peer is not installed."""

    def environment(self) -> Mapping[str, str]:
        return {"OPENAI_BASE_URL": f"{self.model_url}/v1", "OPENAI_API_KEY": "none", "PORT": str(self.port)}

    health: ClassVar[str] = "/"

    async def prepare(self, client: httpx2.AsyncClient, chat: str) -> None:
        """Prepare a chat before an answer is requested."""
        return

    @abstractmethod
    def begin(self, chat: str, prompt: str) -> Request:
        """Return the request that starts an answer."""

    def begun(self, chat: str, answer: bytes) -> bool:
        """Take the answer to `begin`, or its first bytes if it is a stream. Returns whether these bytes are enough."""
        return True

    def begin_url(self) -> str:
        """Return the address for `begin`, if it differs from the readers' address."""
        return self.url

    @abstractmethod
    def watch(self, chat: str, after: Frame | None, shown: str) -> Request:
        """Return the request for a chat's stream: from the start (a second tab), or after a lost connection, where
        `after` is the last frame of a client that shows the text `shown`. Raises Cannot."""

    @abstractmethod
    def fold(self, shown: str, frame: Frame) -> str:
        """Return the text that a client shows after a frame, according to the peer's documentation."""

    def placed(self, frame: Frame) -> Frame:
        """Return the frame with the id to resume from, if the id is not in the event's own field."""
        return frame

    def settled(self, frame: Frame) -> bool:
        """Return whether a client that loses its connection after this frame can resume."""
        return True

    def abort(self, chat: str) -> Request:
        """Return the request that stops the answer. Raises Cannot."""
        raise Cannot("no such command")

    async def start(self) -> None:
        """Start the peer, or start it again with the same data after `kill`."""
        if self.needs_store and self._store is None:
            flags = ["--bind", "127.0.0.1", "--port", str(self.store_port), "--save", "", "--appendonly", "yes"]
            self._store = Program([find_binary(), *flags], self.directory / "store", {})
        self._server = Program(self.command(), self.directory, self.environment())
        await self._server.answers(self.url + self.health)

    def kill(self) -> None:
        """Send kill -9 to the servers. The store keeps running, unless it is a child of a server."""
        if self._server is not None:
            self._server.kill()

    def close(self) -> None:
        for program in self.programs():
            if program is not None:
                program.close()

    def programs(self) -> list[Program | None]:
        """Return the started processes."""
        return [self._server, self._store]

    def processes(self) -> tuple[list[int], list[int]]:
        """Return the process ids of the servers and of the stores."""
        found = {pid: name for p in self.programs() if p is not None for pid, name in tree(p.pid).items()}
        stores = [pid for pid, name in found.items() if _STORES.search(name)]
        return [pid for pid in found if pid not in stores], stores
