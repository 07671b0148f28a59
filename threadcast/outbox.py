"""What was sent and is not seen in the stream yet: kept in order, bounded, and on disk if wanted.

`Outbox` is what a chat asks of it; `MemoryOutbox` forgets with the program, `FileOutbox` does not. It knows neither
HTTP nor why a command leaves. The law: a command is in it from `add` to `remove`, and never twice.
"""

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Protocol

import msgspec

from protocol.commands import EXEMPT_FROM_QUEUE_LIMIT
from threadcast.errors import OutboxFull, OutboxInUse

__all__ = ["EXEMPT_MAX_COUNT", "WAITING_MAX_COUNT", "FileOutbox", "Held", "MemoryOutbox", "Outbox"]

WAITING_MAX_COUNT = 100
"""Commands of one chat that would wait in the server's queue, which holds no more (PROTOCOL §18)."""

EXEMPT_MAX_COUNT = 1_000
"""Aborts, parameters, decisions, tool results and queue edits, which overtake the waiting messages (PROTOCOL §18)."""

_EXEMPT_TYPES = frozenset(kind.__struct_config__.tag for kind in EXEMPT_FROM_QUEUE_LIMIT)


class Held(msgspec.Struct, frozen=True, kw_only=True):
    """One command. `body` is the JSON that goes out, the same bytes each time (PROTOCOL §3)."""

    chat_id: str
    request_id: str
    type: str
    body: msgspec.Raw

    @property
    def is_exempt(self) -> bool:
        """It does not wait in the server's queue, so it need not wait behind what does."""
        return self.type in _EXEMPT_TYPES


class Outbox(Protocol):
    """Where commands wait. One program uses one at a time; calls return at once."""

    def add(self, held: Held) -> None:
        """Keep it. One whose id is kept already stays as it is.

        Raises:
            OutboxFull: this chat holds as much as the server would.
        """

    def remove(self, chat_id: str, request_id: str) -> None:
        """Keep it no longer; one that is not there is no error."""

    def held(self, chat_id: str) -> list[Held]:
        """What is kept for a chat, in the order of `add`."""

    def chats(self) -> list[str]:
        """The chats for which something is kept."""


class MemoryOutbox:
    """An outbox for as long as the program runs."""

    def __init__(self) -> None:
        self._kept: dict[str, dict[str, Held]] = {}

    def add(self, held: Held) -> None:
        kept = self._kept.setdefault(held.chat_id, {})
        if held.request_id in kept:
            return
        alike = sum(1 for other in kept.values() if other.is_exempt == held.is_exempt)
        limit = EXEMPT_MAX_COUNT if held.is_exempt else WAITING_MAX_COUNT
        if alike >= limit:
            text = f"{alike} commands of chat {held.chat_id!r} wait to be seen by the server; the limit is {limit}"
            raise OutboxFull(f"{text}. Wait until some have gone (`await chat.settled()`), or `forget` them")
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
"""After so many appended lines the file is written anew with what is still held: some MB at most."""


class FileOutbox:
    """An outbox in a file of JSON lines, so that a program which restarts still holds what it had sent.

    A line is appended and handed to the operating system before `add` returns: it survives the death of the program,
    `kill -9` included. `is_synced` also waits for the disk, some milliseconds each, and so outlives a power failure. A
    torn last line is left out. The claim of a client tool is dropped at the next start, since it was this program's.

    While nothing can be written (a full disk), `add` raises OSError and has not happened; what `remove` could not say
    is said with the next line, and a program that dies before posts once more what the server knows already.
    """

    def __init__(self, path: str | os.PathLike[str], *, is_synced: bool = False) -> None:
        """Open or create the file, for this program alone; only its owner may read it.

        Raises:
            OutboxInUse: another program has it open.
            OSError: it cannot be read or written.
        """
        self._path = Path(path)
        self._is_synced = is_synced
        self._memory = MemoryOutbox()
        self._lines_count = 0
        self._unsaid: list[_Add | _Remove] = []
        self._lock = os.open(self._path.with_name(self._path.name + ".lock"), os.O_RDWR | os.O_CREAT, 0o600)
        try:
            _lock(self._lock, self._path)
            for held in _read(self._path):
                with suppress(OutboxFull):  # the file was written under a larger limit
                    self._memory.add(held)
            self._file = self._rewritten()
        except BaseException:
            os.close(self._lock)
            raise

    def close(self) -> None:
        """Let another program have it."""
        os.close(self._file)
        os.close(self._lock)

    def add(self, held: Held) -> None:
        before = len(self._memory.held(held.chat_id))
        self._memory.add(held)
        if len(self._memory.held(held.chat_id)) > before:
            try:
                self._append(_Add(held))
            except OSError:
                self._unsaid.pop()
                self._memory.remove(held.chat_id, held.request_id)
                raise

    def remove(self, chat_id: str, request_id: str) -> None:
        before = len(self._memory.held(chat_id))
        self._memory.remove(chat_id, request_id)
        if len(self._memory.held(chat_id)) < before:
            with suppress(OSError):  # said with the next line
                self._append(_Remove(chat_id, request_id))

    def held(self, chat_id: str) -> list[Held]:
        return self._memory.held(chat_id)

    def chats(self) -> list[str]:
        return self._memory.chats()

    def _append(self, line: _Add | _Remove) -> None:
        self._unsaid.append(line)
        size_bytes = os.fstat(self._file).st_size
        try:
            _write(self._file, self._unsaid, is_synced=self._is_synced)
        except OSError:
            os.ftruncate(self._file, size_bytes)  # the next line must not be read as the end of half of this one
            raise
        self._lines_count += len(self._unsaid)
        self._unsaid.clear()
        if self._lines_count >= REWRITTEN_LINES:
            with suppress(OSError):  # the old file is as good, and longer
                old, self._file = self._file, self._rewritten()
                os.close(old)

    def _rewritten(self) -> int:
        """The file as it should be, in place of what it was; a death in between leaves the old one whole."""
        fresh = self._path.with_name(self._path.name + ".new")
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND
        file = os.open(fresh, flags, 0o600)
        try:
            held = [_Add(held) for chat_id in self.chats() for held in self.held(chat_id)]
            _write(file, held, is_synced=True)
            fresh.replace(self._path)
            _sync_directory(self._path.parent)
        except BaseException:
            os.close(file)
            raise
        self._lines_count = 0
        return file


def _write(file: int, lines: Iterable[_Add | _Remove], *, is_synced: bool) -> None:
    data = memoryview(b"".join(_encoder.encode(line) + b"\n" for line in lines))
    while data:
        data = data[os.write(file, data) :]
    if is_synced:
        os.fsync(file)


def _sync_directory(path: Path) -> None:
    """A new name is safe from a power failure once its directory is on disk, too."""
    with suppress(OSError):  # Windows opens no directory; some file systems sync none
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
            continue  # torn by a death in the middle of a write
        if isinstance(said, _Remove):
            kept.pop((said.chat_id, said.request_id), None)
        elif said.command.type != "ide_tool_claim":
            kept[said.command.chat_id, said.command.request_id] = said.command
    return list(kept.values())


def _lock(file: int, path: Path) -> None:
    try:
        import fcntl
    except ImportError:  # Windows: the program must see to it by itself
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise OutboxInUse(f"another program has the outbox {path}; give each program a file of its own") from None
