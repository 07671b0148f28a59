"""Holds sent commands that the stream has not shown yet: in order, bounded, and optionally on disk.

`Outbox` is the interface that a chat uses. A `MemoryOutbox` ends with the program; a `FileOutbox` survives the program.
The outbox holds each command once, from `add` to `remove`.
"""

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Protocol

import msgspec

from threadcast_client.errors import OutboxFull, OutboxInUse
from threadcast_protocol.wire.commands import EXEMPT_FROM_QUEUE_LIMIT

__all__ = ["EXEMPT_MAX_COUNT", "WAITING_MAX_COUNT", "WITHDRAWN", "FileOutbox", "Held", "MemoryOutbox", "Outbox"]

WAITING_MAX_COUNT = 100
"""The maximum number of held commands of one chat that will wait in the server's queue: as many as the queue holds
(PROTOCOL §18)."""

EXEMPT_MAX_COUNT = 1_000
"""The maximum number of held commands of one chat that overtake waiting messages. Such commands are aborts, parameters,
decisions, tool results and queue edits (PROTOCOL §18)."""

WITHDRAWN = "withdrawn"
"""The type of a posted command that is being withdrawn. The server may have the command, so the outbox holds the
command until the server has answered. `request_id` and `body` are those of the command."""

_EXEMPT_TYPES = frozenset(kind.__struct_config__.tag for kind in EXEMPT_FROM_QUEUE_LIMIT) | {WITHDRAWN}


class Held(msgspec.Struct, frozen=True, kw_only=True):
    """One command. `body` is the JSON to be posted, the same bytes each time (PROTOCOL §3)."""

    chat_id: str
    request_id: str
    type: str
    body: msgspec.Raw

    @property
    def is_exempt(self) -> bool:
        """Whether the command overtakes the server's queue, so that it need not wait behind others in the outbox."""
        return self.type in _EXEMPT_TYPES


class Outbox(Protocol):
    """The store of sent commands. Only one program may use an outbox at a time. No method waits."""

    def add(self, held: Held) -> None:
        """Add a command. If the outbox holds a command with the same id, nothing is changed.

        Raises:
            OutboxFull: the outbox holds as many commands of this chat as the server would accept.
        """

    def remove(self, chat_id: str, request_id: str) -> None:
        """Remove the command; an absent command is not an error."""

    def held(self, chat_id: str) -> list[Held]:
        """Return the commands of a chat, in the order of `add`."""

    def chats(self) -> list[str]:
        """Return the ids of the chats that have commands in the outbox."""


class MemoryOutbox:
    """An outbox in memory, which is lost when the program ends."""

    def __init__(self) -> None:
        self._kept: dict[str, dict[str, Held]] = {}

    def add(self, held: Held) -> None:
        kept = self._kept.setdefault(held.chat_id, {})
        if held.request_id in kept:
            return
        alike = sum(1 for other in kept.values() if other.is_exempt == held.is_exempt)
        limit = EXEMPT_MAX_COUNT if held.is_exempt else WAITING_MAX_COUNT
        if alike >= limit:
            text = f"{alike} commands of chat {held.chat_id!r} wait for the server; the limit is {limit}"
            raise OutboxFull(f"{text}. Wait until some were sent (`await chat.settled()`), or `forget` them")
        kept[held.request_id] = held

    def remove(self, chat_id: str, request_id: str) -> None:
        kept = self._kept.get(chat_id, {})
        if kept.pop(request_id, None) is not None and not kept:
            del self._kept[chat_id]

    def held(self, chat_id: str) -> list[Held]:
        return list(self._kept.get(chat_id, {}).values())

    def chats(self) -> list[str]:
        return list(self._kept)


class _Add(msgspec.Struct, frozen=True, tag="add"):
    command: Held


class _Remove(msgspec.Struct, frozen=True, tag="remove"):
    chat_id: str
    request_id: str


_lines = msgspec.json.Decoder(_Add | _Remove)
_encoder = msgspec.json.Encoder()

REWRITTEN_LINES = 10_000
"""The number of appended lines after which the file is rewritten with the present commands. The file has at most a few
MB."""

_RENAMES_OPEN_FILES = os.name == "posix"
"""Whether an open file can be renamed or replaced, which Windows does not permit."""


class FileOutbox(MemoryOutbox):
    """An outbox in a file of JSON lines, so that a restarted program still holds its sent commands.

    `add` returns after the line was written to the operating system, so the command survives the death of the program,
    even `kill -9`. With `is_synced`, `add` also waits for the disk, which takes some milliseconds, and the command
    survives a power failure. An incomplete last line is ignored. Claims of client tools are dropped at the next start,
    because they belong to this run of the program.

    If the file cannot be written (a full disk), `add` raises OSError and adds nothing. A removal that could not be
    written is written with the next line. If the program dies before that, the next program posts a command that the
    server has already; because of its id, the command still takes effect only once.

    Windows has no `flock`, so nothing prevents a second program from opening the same file. Give each program its own
    file.
    """

    def __init__(self, path: str | os.PathLike[str], *, is_synced: bool = False) -> None:
        """Open or create the file, for this program only. Only the file's owner may read it.

        Raises:
            OutboxInUse: another program has the file open.
            OSError: the file cannot be read or written.
        """
        super().__init__()
        self._path = Path(path)
        self._is_synced = is_synced
        self._lines_count = 0
        self._unsaid: list[_Add | _Remove] = []
        self._lock = os.open(self._path.with_name(self._path.name + ".lock"), os.O_RDWR | os.O_CREAT, 0o600)
        try:
            _lock(self._lock, self._path)
            for held in _read(self._path):
                with suppress(OutboxFull):  # the limit was larger when the file was written
                    super().add(held)
            self._file = self._rewritten()
        except BaseException:
            os.close(self._lock)
            raise

    def close(self) -> None:
        """Close the file, so that another program can open it."""
        os.close(self._file)
        os.close(self._lock)

    def add(self, held: Held) -> None:
        is_new = not self._has(held.chat_id, held.request_id)
        super().add(held)
        if is_new:
            try:
                self._append(_Add(held))
            except OSError:
                self._unsaid.pop()
                super().remove(held.chat_id, held.request_id)
                raise

    def remove(self, chat_id: str, request_id: str) -> None:
        if self._has(chat_id, request_id):
            super().remove(chat_id, request_id)
            with suppress(OSError):  # the removal is written with the next line
                self._append(_Remove(chat_id, request_id))

    def _has(self, chat_id: str, request_id: str) -> bool:
        return request_id in self._kept.get(chat_id, {})

    def _append(self, line: _Add | _Remove) -> None:
        self._unsaid.append(line)
        size_bytes = os.fstat(self._file).st_size
        try:
            _write(self._file, self._unsaid, is_synced=self._is_synced)
        except OSError:
            os.ftruncate(self._file, size_bytes)  # otherwise the next line would follow half of this line
            raise
        self._lines_count += len(self._unsaid)
        self._unsaid.clear()
        if self._lines_count >= REWRITTEN_LINES and _RENAMES_OPEN_FILES:  # otherwise the next start rewrites the file
            with suppress(OSError):  # the old file is still valid
                old, self._file = self._file, self._rewritten()
                os.close(old)

    def _rewritten(self) -> int:
        """Replace the file by a file with only the present commands, and return the new file open. A crash leaves the
        old file unchanged."""
        fresh = self._path.with_name(self._path.name + ".new")
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND
        file = os.open(fresh, flags, 0o600)
        try:
            held = [_Add(held) for chat_id in self.chats() for held in self.held(chat_id)]
            _write(file, held, is_synced=True)
            if _RENAMES_OPEN_FILES:
                fresh.replace(self._path)
        except BaseException:
            os.close(file)
            raise
        if not _RENAMES_OPEN_FILES:
            os.close(file)
            fresh.replace(self._path)
            file = os.open(self._path, os.O_WRONLY | os.O_APPEND)
        _sync_directory(self._path.parent)
        self._lines_count = 0
        return file


def _write(file: int, lines: Iterable[_Add | _Remove], *, is_synced: bool) -> None:
    data = memoryview(b"".join(_encoder.encode(line) + b"\n" for line in lines))
    while data:
        data = data[os.write(file, data) :]
    if is_synced:
        os.fsync(file)


def _sync_directory(path: Path) -> None:
    """Write a directory to the disk, so that the new name of a file survives a power failure."""
    with suppress(OSError):  # Windows cannot open directories; some file systems cannot sync them
        directory = os.open(path, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)


def _read(path: Path) -> list[Held]:
    kept: dict[tuple[str, str], Held] = {}
    for line in path.read_bytes().splitlines() if path.exists() else ():
        try:
            said = _lines.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError):
            continue  # the line is incomplete, because the program died while it wrote
        if isinstance(said, _Remove):
            kept.pop((said.chat_id, said.request_id), None)
        elif said.command.type != "ide_tool_claim":
            kept[said.command.chat_id, said.command.request_id] = said.command
    return list(kept.values())


def _lock(file: int, path: Path) -> None:
    try:
        import fcntl
    except ImportError:  # Windows
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise OutboxInUse(f"another program has the outbox {path}; give each program a file of its own") from None
