"""Real processes, real HTTP: starts `threadcast` as a user does, posts commands, and watches streams as a client does.

A `Watcher` folds what it receives with the one reducer and refuses any gap, so every test that watches also checks
the law. Waiting is for events with a deadline, never for time. Only processes started here are ended here.
"""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Self

import anyio
import anyio.to_thread
import httpx2

from protocol.codec import decode_event, decode_snapshot, encode
from protocol.events import Event, RuntimeUpdated
from protocol.messages import JsonObject
from protocol.reducer import reduce
from protocol.snapshot import snapshot_of, state_from_snapshot
from protocol.sse import EventFrame, FrameParser
from protocol.state import ChatState

__all__ = ["DEADLINE_SECONDS", "ROOT", "Process", "Watcher", "command", "start", "user_message", "watching"]

ROOT = Path(__file__).resolve().parents[2]
DEADLINE_SECONDS = 60.0
"""For starts and whole answers on a busy machine; single events come within milliseconds."""


class Process:
    """One `threadcast` process. `url` is where it listens (web and serve)."""

    def __init__(self, arguments: list[str], log: Path, environment: Mapping[str, str] | None = None) -> None:
        self._log = log
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("OPENAI_", "THREADCAST_", "REDIS_"))}
        with log.open("ab") as stderr:
            self._popen = subprocess.Popen(
                [sys.executable, "-m", "server.cli", *arguments],
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

    def log_text(self) -> str:
        return self._log.read_text()

    async def ready(self) -> Self:
        """Wait until it says that it is; a process that ends instead is an error that shows its log."""
        with anyio.fail_after(DEADLINE_SECONDS):
            line = await anyio.to_thread.run_sync(self._first_line, abandon_on_cancel=True)
        assert line, f"it ended with {self._popen.wait(5)} before it was ready:\n{self.log_text()}"
        found = re.search(r"http://\S+", line)
        self.url = found[0] if found else ""
        return self

    def _first_line(self) -> str:
        assert self._popen.stdout is not None
        while line := self._popen.stdout.readline().decode():
            if "listens on" in line or "is ready" in line:
                return line
        return ""

    def kill(self) -> None:
        """kill -9."""
        self._popen.kill()
        self._popen.wait(DEADLINE_SECONDS)

    def send(self, number: signal.Signals) -> None:
        self._popen.send_signal(number)

    async def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """End it as an operator does; returns the exit status."""
        self._popen.send_signal(number)
        return await self.ended()

    async def ended(self) -> int:
        with anyio.fail_after(DEADLINE_SECONDS):
            return await anyio.to_thread.run_sync(self._popen.wait, abandon_on_cancel=True)

    def close(self) -> None:
        if self._popen.poll() is None:
            self._popen.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._popen.wait(DEADLINE_SECONDS)
            if self._popen.poll() is None:
                self.kill()
        if self._popen.stdout is not None:
            self._popen.stdout.close()


@contextlib.contextmanager
def start(*arguments: str, log: Path, environment: Mapping[str, str] | None = None) -> Iterator[Process]:
    """A process for as long as the block runs."""
    process = Process(list(arguments), log, environment)
    try:
        yield process
    finally:
        process.close()


class Watcher:
    """One subscription: everything it received, and the state it folds to.

    `has_ended`: the stream is over; `broke` is why, when it was not the server who ended it. `runs_ended` counts the
    outcomes of runs that came, on top of what the first snapshot tells of earlier ones.
    """

    def __init__(self, chat_id: str) -> None:
        self.chat_id = chat_id
        self.state: ChatState | None = None
        self.events: list[Event] = []
        self.frames: list[JsonObject] = []
        self.last_id = ""
        self.snapshots = 0
        self.has_ended = False
        self.broke: Exception | None = None
        self.runs_ended = 0
        self._changed = anyio.Event()

    def take(self, frame: EventFrame) -> None:
        body: dict[str, Any] = json.loads(frame.data)
        assert body["chat_id"] == self.chat_id
        self.frames.append(body)
        _, position, base = map(int, frame.last_event_id.split("-"))
        self.last_id = frame.last_event_id
        seq = int(body["seq"])
        assert seq == position - base
        raw = _event_json(body)
        if self.state is not None and len(self.frames) == 1:  # it goes on after what somebody else saw
            self.runs_ended = _runs_ended_in(self.state)
        if body["type"] == "snapshot":
            assert seq == 0
            self.snapshots += 1
            self.state = state_from_snapshot(self.chat_id, decode_snapshot(raw), position)
            self.runs_ended = max(self.runs_ended, _runs_ended_in(self.state))
        else:
            assert self.state is not None, "an event before any snapshot"
            assert position == self.state.position + 1, f"a hole: {position} after {self.state.position}"
            event = decode_event(raw)
            self.events.append(event)
            self.state = reduce(self.state, position, event)
            if isinstance(event, RuntimeUpdated) and event.outcome is not None:  # one per run (EVT-15)
                self.runs_ended += 1
        self._notify()

    def state_after(self, seq: int) -> ChatState:
        """What this watcher held after the event with that seq, if its only snapshot was its first frame."""
        first, *rest = self.frames
        base = int(self.last_id.split("-")[2])
        state = state_from_snapshot(self.chat_id, decode_snapshot(_event_json(first)), base)
        for frame in rest[:seq]:
            state = reduce(state, state.position + 1, decode_event(_event_json(frame)))
        return state

    def begin(self) -> None:
        """A stream opens, perhaps after an earlier one."""
        self.has_ended, self.broke = False, None

    def end(self, broke: Exception | None = None) -> None:
        self.has_ended, self.broke = True, broke
        self._notify()

    def _notify(self) -> None:
        changed, self._changed = self._changed, anyio.Event()
        changed.set()

    async def until(self, wanted: "Callable[[Watcher], object]", seconds: float = DEADLINE_SECONDS) -> None:
        """Wait for it; a stream that is over cannot bring it any more, which fails at once."""
        with anyio.fail_after(seconds):
            while not wanted(self):
                why = f"it broke: {self.broke!r}" if self.broke else "the server ended it"
                assert not self.has_ended, f"the stream was over too soon ({why}), after {self.types()[-5:]}"
                await self._changed.wait()

    async def at_rest(self, runs: int = 1, seconds: float = DEADLINE_SECONDS) -> None:
        """Wait until so many runs have ended, seen by their outcomes, and nothing is queued."""

        def rests(watcher: Watcher) -> bool:
            state = watcher.state
            is_at_rest = state is not None and state.is_at_rest and state.runtime.queue_size == 0
            return is_at_rest and watcher.runs_ended >= runs

        await self.until(rests, seconds)

    @property
    def messages(self) -> list[tuple[str, str]]:
        assert self.state is not None
        return [(m.role, str(m.content)) for m in snapshot_of(self.state).messages]

    @property
    def snapshot(self) -> bytes:
        assert self.state is not None
        return encode(snapshot_of(self.state))

    def types(self) -> list[str]:
        return [str(frame["type"]) for frame in self.frames]


def _runs_ended_in(state: ChatState) -> int:
    """As far as a state tells: each message of a person had its run, and the last one's may still be going on."""
    asked = sum(1 for key in state.path if state.nodes[key].role == "user")
    return asked if state.is_at_rest and state.runtime.outcome is not None else max(0, asked - 1)


def _event_json(frame: JsonObject) -> bytes:
    return json.dumps({key: value for key, value in frame.items() if key not in ("chat_id", "seq")}).encode()


@contextlib.asynccontextmanager
async def watching(
    url: str, chat_id: str, *, headers: dict[str, str] | None = None, query: str = "", watcher: Watcher | None = None
) -> AsyncIterator[Watcher]:
    """A subscription that stays open for the block; its first snapshot or event has come unless it resumes."""
    mine = watcher or Watcher(chat_id)
    mine.begin()
    timeout = httpx2.Timeout(DEADLINE_SECONDS, read=60)
    async with httpx2.AsyncClient(timeout=timeout) as client, anyio.create_task_group() as tasks:
        opened = anyio.Event()

        async def read() -> None:
            parser = FrameParser()
            broke: Exception | None = None
            try:
                address = f"{url}/v1/chats/subscribe?chat_id={chat_id}{query}"
                async with client.stream("GET", address, headers=headers or {}) as answer:
                    assert answer.status_code == 200, await answer.aread()
                    opened.set()
                    async for chunk in answer.aiter_raw():
                        for frame in parser.feed(chunk):
                            if isinstance(frame, EventFrame):
                                mine.take(frame)
            except httpx2.TransportError as trouble:
                broke = trouble
            opened.set()
            mine.end(broke)

        tasks.start_soon(read)
        with anyio.fail_after(DEADLINE_SECONDS):
            await opened.wait()
            if headers is None and not query:
                await mine.until(lambda w: w.state is not None)
        yield mine
        tasks.cancel_scope.cancel()


async def command(url: str, chat_id: str, body: JsonObject, headers: dict[str, str] | None = None) -> httpx2.Response:
    """POST one command."""
    async with httpx2.AsyncClient(timeout=DEADLINE_SECONDS) as client:
        return await client.post(f"{url}/v1/chats/{chat_id}/commands", json=body, headers=headers or {})


def user_message(request_id: str, text: str, **more: object) -> JsonObject:
    return {"type": "user_message", "client_request_id": request_id, "content": text, **more}
