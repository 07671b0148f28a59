"""Runs `threadcast` with a profiler that records the functions a message passes on its way to the first token.

    python -m tests.support.way FILE serve --port 0

A recording begins with the first function that sees `POST /v1/chats/{id}/commands` and ends when the first delta of the
answer is written to a stream. FILE receives one line of JSON per message: `calls` lists every call of a project
function in order, as `path: function`. `way` lists once each function that hands the message on, directly or through a
function that it calls, in the order of their first calls. `HANDS_ON` names the functions that hand a message on.
Helpers that only return a value are in `calls` alone. Nested functions and comprehensions belong to the function around
them.
"""

import json
import sys
from pathlib import Path
from types import CodeType, FrameType

from threadcast.cli import main

__all__: list[str] = []

ROOT = Path(__file__).parents[2]
PACKAGES = ("protocol/threadcast_protocol/", "server/threadcast/")
HANDS_ON = {
    "Redis.send",  # from one process to another, through the store
    "EntryBuilder.say",  # from a decision to the log
    "Writer.offer",  # from the model's stream to the log
    "ReaderConnection.write",  # from the log to a reader
}

BESIDE = {
    "RedisDispatch._beat",  # a heartbeat that is due at the same time
    "RedisDispatch.check_buckets",  # a sweep, likewise
    "RedisDispatch.release",  # the release of an earlier chat, a moment after its work
    "RedisTraces.put_traces",  # the records of an earlier run, likewise
    "RedisLists.meta",  # the owner of the chat, which a new relay reads
}
"""Functions of `HANDS_ON` are ignored below these calls of the store, which carry no part of the message."""


class Recorder:
    """A profile function: the interpreter calls it at each call, and when a coroutine resumes."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._names: dict[CodeType, str] = {}
        self._calls: list[str] | None = None  # None between two recordings
        self._way: dict[str, bool] = {}

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        name = self._names.get(code)
        if name is None:
            name = self._names[code] = _name_of(code)
        if event != "call" or not name:
            return
        if self._calls is None:
            if not _is_post(frame):
                return
            self._calls, self._way = [], {}
        if not _goes_on(frame):
            self._calls.append(name)
        self._way.setdefault(name, False)
        if code.co_qualname in HANDS_ON:
            self._mark(frame)
        if code.co_qualname == "ReaderConnection.write" and b'"stream_delta"' in frame.f_locals["data"]:
            way = [name for name, hands_on in self._way.items() if hands_on]
            with self._file.open("a") as out:
                out.write(json.dumps({"calls": self._calls, "way": way}) + "\n")
            self._calls = None

    def _mark(self, frame: FrameType | None) -> None:
        """Mark this function and its callers. The caller of a coroutine is the function that awaits it."""
        callers: list[str] = []
        while frame is not None:
            if frame.f_code.co_qualname in BESIDE:
                return
            callers.append(self._names.get(frame.f_code, ""))
            frame = frame.f_back
        self._way.update((name, True) for name in callers if name in self._way)


def _name_of(code: CodeType) -> str:
    """Return `path: function`; '' for a function outside the project or nested in another function."""
    path = code.co_filename.removeprefix(f"{ROOT}/")
    is_ours = path.startswith(PACKAGES) and not code.co_name.startswith("<") and "<locals>" not in code.co_qualname
    return f"{path}: {code.co_qualname}" if is_ours else ""


def _goes_on(frame: FrameType) -> bool:
    """Return whether this is a coroutine or generator that resumes after an await or a yield."""
    return frame.f_lineno != frame.f_code.co_firstlineno


def _is_post(frame: FrameType) -> bool:
    scope = frame.f_locals.get("scope")
    return isinstance(scope, dict) and scope.get("method") == "POST" and str(scope.get("path")).endswith("/commands")


if __name__ == "__main__":
    sys.setprofile(Recorder(Path(sys.argv[1])))
    status = main(sys.argv[2:])
    sys.setprofile(None)
    sys.exit(status)
