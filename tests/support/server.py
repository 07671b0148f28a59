"""Runs `threadcast` processes as a user does, for tests: start, wait until ready, post commands, stop or kill.

Each process writes its log to a file, and a process that ends before it is ready fails the test with that log. Tests
wait for events, with a deadline, and end only the processes that they started.
"""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Self

import anyio
import anyio.to_thread
import httpx2

from threadcast_protocol.wire.messages import JsonObject

__all__ = [
    "DEADLINE_SECONDS",
    "ROOT",
    "Process",
    "ask",
    "command",
    "logged",
    "run_command",
    "serving",
    "start",
    "started_server",
    "user_message",
]

ROOT = Path(__file__).resolve().parents[2]
DEADLINE_SECONDS = 60.0
"""Seconds for a start or a whole answer on a busy machine; a single event comes within milliseconds."""


class Process:
    """One `threadcast` process. `url` is the address where a web or serve process listens, "" before it is ready."""

    def __init__(
        self,
        arguments: Sequence[str],
        log: Path,
        environment: Mapping[str, str] | None = None,
        program: Sequence[str] = ("threadcast.cli",),
        prefix: Sequence[str] = (),
    ) -> None:
        """Start the process without waiting for it.

        Args:
            arguments: The command line of `threadcast`.
            log: The file to which stderr is appended; several processes may share it.
            environment: Variables for this process. The process inherits no variables that configure Threadcast, OpenAI
                or Redis.
            program: The Python module to run, and the arguments that precede those of the command line.
            prefix: A command that runs Python, for example with fewer rights.
        """
        self._log = log
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("OPENAI_", "THREADCAST_", "REDIS_"))}
        if os.geteuid() == 0:  # often only root can read the tests' interpreter and directories
            clean["THREADCAST_SERVER__PROGRAMS_USER"] = "root"
        with log.open("ab") as stderr:
            self._popen = subprocess.Popen(
                [*prefix, sys.executable, "-m", *program, *arguments],
                cwd=ROOT,
                env={**clean, **(environment or {})},
                stdout=subprocess.PIPE,
                stderr=stderr,
                start_new_session=True,
            )
        self.url = ""

    @property
    def pid(self) -> int:
        return self._popen.pid

    @property
    def has_ended(self) -> bool:
        return self._popen.poll() is not None

    @property
    def log(self) -> Path:
        """The file of stderr."""
        return self._log

    def log_text(self) -> str:
        return self._log.read_text()

    def wait_ready(self) -> Self:
        """Block until the process prints its ready line. Raises AssertionError with the log if the process ends first,
        or takes too long and is killed."""
        limit = threading.Timer(DEADLINE_SECONDS, self._popen.kill)
        limit.start()
        try:
            line = self._first_line()
        finally:
            limit.cancel()
        assert line, f"it ended with {self._popen.wait(5)} before it was ready:\n{self.log_text()}"
        found = re.search(r"http://\S+", line)
        self.url = found[0] if found else ""
        return self

    async def ready(self) -> Self:
        """Wait like `wait_ready`, in a test with an event loop."""
        return await anyio.to_thread.run_sync(self.wait_ready, abandon_on_cancel=True)

    def _first_line(self) -> str:
        assert self._popen.stdout is not None
        while line := self._popen.stdout.readline().decode():
            if "listens on" in line or "is ready" in line:
                return line
        return ""

    def kill(self) -> None:
        """kill -9. Returns once the process has ended."""
        self._popen.kill()
        self._popen.wait(DEADLINE_SECONDS)

    def send(self, number: signal.Signals) -> None:
        self._popen.send_signal(number)

    async def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """End the process as an operator does; returns its exit status."""
        self.send(number)
        return await self.ended()

    async def ended(self) -> int:
        """Wait until the process has ended; returns its exit status."""
        with anyio.fail_after(DEADLINE_SECONDS):
            return await anyio.to_thread.run_sync(self._popen.wait, abandon_on_cancel=True)

    def close(self) -> None:
        """End the process if it still runs: by SIGTERM, then by kill -9 if it takes too long."""
        if not self.has_ended:
            self._popen.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._popen.wait(DEADLINE_SECONDS)
            self._popen.kill()  # has no effect on a process that has ended
            self._popen.wait(DEADLINE_SECONDS)
        if self._popen.stdout is not None:
            self._popen.stdout.close()


@contextlib.contextmanager
def start(*arguments: str, log: Path, environment: Mapping[str, str] | None = None) -> Iterator[Process]:
    """Start a process that ends with the block. The caller waits until it is `ready`."""
    with contextlib.closing(Process(arguments, log, environment)) as process:
        yield process


@contextlib.contextmanager
def started_server(
    directory: Path,
    *arguments: str,
    config: str | None = None,
    app: Path | None = None,
    is_durable: bool = False,
    environment: Mapping[str, str] | None = None,
) -> Iterator[Process]:
    """Start `threadcast serve` on a free port; the process ends with the block. Wait for it by its `ready`.

    Args:
        directory: Directory in which the configuration and the `log` are written.
        arguments: Further arguments of the command line. Without `--data-dir`, data is kept in memory.
        config: The text of the configuration file; None for none.
        app: A Python file of tools.
        is_durable: Whether the embedded store keeps its data in `directory`/data, so that a later server finds the
            data.
        environment: Variables for the process.
    """
    line = ["serve", "--port", "0", *arguments]
    if is_durable:
        line += ["--data-dir", str(directory / "data")]
    elif "--data-dir" not in arguments:
        line.append("--memory")
    if config is not None:
        file = directory / "threadcast.toml"
        file.write_text(config)
        line += ["--config", str(file)]
    if app is not None:
        line += ["--app", str(app)]
    with start(*line, log=directory / "log", environment=environment) as process:
        yield process


@contextlib.asynccontextmanager
async def serving(
    directory: Path,
    *arguments: str,
    config: str | None = None,
    app: Path | None = None,
    is_durable: bool = False,
    environment: Mapping[str, str] | None = None,
) -> AsyncIterator[Process]:
    """Start a server, wait until it is ready, and run it until the block ends. The arguments are those of
    `started_server`."""
    with started_server(
        directory, *arguments, config=config, app=app, is_durable=is_durable, environment=environment
    ) as process:
        yield await process.ready()


def run_command(*arguments: str, directory: Path, store_url: str, port: str = "0") -> str:
    """Run a command of `threadcast` that ends by itself, as an operator of this store does.

    Args:
        arguments: The command line, such as `doctor`.
        directory: The working directory; for most tests it has no configuration file.
        store_url: The REDIS_URL.
        port: Port on which a server listens; "0" for a command without a server.

    Returns:
        All that the command printed, with the lines of stderr last.
    """
    environment = {"PYTHONPATH": str(ROOT), "PATH": os.environ["PATH"], "REDIS_URL": store_url}
    done = subprocess.run(
        [sys.executable, "-m", "threadcast.cli", *arguments],
        cwd=directory,
        env={**environment, "THREADCAST_SERVER__PORT": port},
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
        check=False,
    )
    return done.stdout + done.stderr


async def command(url: str, chat_id: str, body: JsonObject, headers: dict[str, str] | None = None) -> httpx2.Response:
    """POST one command to a chat."""
    async with httpx2.AsyncClient(timeout=DEADLINE_SECONDS) as client:
        return await client.post(f"{url}/v1/chats/{chat_id}/commands", json=body, headers=headers or {})


async def ask(url: str, chat_id: str, text: str, model: str, request_id: str = "a") -> None:
    """Post a user message that chooses that model. Raises AssertionError when the command is not accepted."""
    answer = await command(url, chat_id, user_message(request_id, text, params={"model": model}))
    assert answer.status_code == 202, answer.text


def user_message(request_id: str, text: str, **more: object) -> JsonObject:
    return {"type": "user_message", "client_request_id": request_id, "content": text, **more}


def logged(log: Path, event: str) -> list[JsonObject]:
    """Return the lines with that event name from a log in JSON, which one or more processes wrote."""
    lines = (json.loads(line) for line in log.read_text().splitlines() if line.startswith("{"))
    return [line for line in lines if line["event"] == event]
