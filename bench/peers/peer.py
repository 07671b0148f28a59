"""What every peer must offer to be measured: how it is started, asked, read, stopped, and how its client shows text.

Knows HTTP and processes, no peer; each peer's module beside this one fills it in, following that peer's documents.
`load.py` and `trials.py` call it. The rule: what a peer cannot do is said with None, a flag or `Cannot`, and never
imitated for it.
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

from bench.processes import tree
from server.store.server_process import find_binary
from tests.ports import free_port

__all__ = ["APPS", "INSTALLED", "Cannot", "Frame", "Peer", "Program", "Request", "json_request"]

ROOT = Path(__file__).resolve().parents[2]
INSTALLED = ROOT / ".peers"
APPS = Path(__file__).parent / "apps"

START_SECONDS = 90.0
"""The slowest of them imports for ten seconds on a machine that has nothing else to do."""

STOP_SECONDS = 5.0

_CHILD = ROOT / "server" / "store" / "child.py"
"""Ends what we started when we end, in whatever way."""

_STORES = re.compile("valkey|redis|postgres")


class Cannot(Exception):
    """This peer has no such thing, or is not installed; the sentence says which."""


class Request(msgspec.Struct, frozen=True):
    """One HTTP request, for raw sockets as for a client."""

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
        """Of its data; {} when that is no object."""
        try:
            return msgspec.json.decode(self.data, type=dict[str, object])
        except msgspec.MsgspecError:
            return {}


class Program:
    """A process that we started, its descendants, and its log."""

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
        """Wait until it speaks HTTP. Raises Cannot, with the end of its log, when it ends or never does."""
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
        """kill -9 of it and all that it started."""
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
    """A server that is measured, of one kind, on one port, with one directory for what it keeps."""

    name: ClassVar[str]
    """As figures are keyed by."""
    version: str = ""
    begins_by_reading: ClassVar[bool] = False
    """The request that starts the answer is the stream of its first reader."""
    opens_first: ClassVar[bool] = False
    """Readers can be there before the answer is asked for."""
    needs_store: ClassVar[bool] = False
    """A Valkey of its own, with an append-only file."""
    most_readers: ClassVar[int] = 1_000
    """Of one answer."""

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
        """That serves on `port` and asks the model at `model_url`. Raises Cannot when it is not installed."""

    def environment(self) -> Mapping[str, str]:
        return {"OPENAI_BASE_URL": f"{self.model_url}/v1", "OPENAI_API_KEY": "none", "PORT": str(self.port)}

    health: ClassVar[str] = "/"

    async def prepare(self, client: httpx2.AsyncClient, chat: str) -> None:
        """Make what must be there before an answer is asked for."""
        return

    @abstractmethod
    def begin(self, chat: str, prompt: str) -> Request:
        """The request that starts an answer."""

    def begun(self, chat: str, answer: bytes) -> bool:
        """What `begin` was answered with, or its first bytes when it is a stream; whether that is enough."""
        return True

    def begin_url(self) -> str:
        """Where `begin` goes, if not where readers go."""
        return self.url

    @abstractmethod
    def watch(self, chat: str, after: Frame | None, shown: str) -> Request:
        """The stream of a chat: from the start (a second tab), or after a cut, when `after` was the last frame of a
        client that shows `shown`. Raises Cannot."""

    @abstractmethod
    def fold(self, shown: str, frame: Frame) -> str:
        """The text that a client shows after this frame, as this peer's documents tell clients to."""

    def placed(self, frame: Frame) -> Frame:
        """With the id that resumes after it, where that is not in the event's own field."""
        return frame

    def settled(self, frame: Frame) -> bool:
        """Whether a client that is cut after this frame knows where it stopped."""
        return True

    def abort(self, chat: str) -> Request:
        """That stops the answer. Raises Cannot."""
        raise Cannot("no such command")

    async def start(self) -> None:
        """Begin, or begin again with the same data after `kill`."""
        if self.needs_store and self._store is None:
            flags = ["--bind", "127.0.0.1", "--port", str(self.store_port), "--save", "", "--appendonly", "yes"]
            self._store = Program([find_binary(), *flags], self.directory / "store", {})
        self._server = Program(self.command(), self.directory, self.environment())
        await self._server.answers(self.url + self.health)

    def kill(self) -> None:
        """kill -9 of the servers; the store stays, unless it is the server's own child."""
        if self._server is not None:
            self._server.kill()

    def close(self) -> None:
        for program in self.programs():
            if program is not None:
                program.close()

    def programs(self) -> list[Program | None]:
        """What we started for it."""
        return [self._server, self._store]

    def processes(self) -> tuple[list[int], list[int]]:
        """The ids of servers and of stores."""
        found = {pid: name for p in self.programs() if p is not None for pid, name in tree(p.pid).items()}
        stores = [pid for pid, name in found.items() if _STORES.search(name)]
        return [pid for pid in found if pid not in stores], stores
