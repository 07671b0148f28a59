"""Reads the append-only file of a Valkey or Redis server. Finds the end of the last whole record, and parses the
manifest.

A file of commands is a sequence of records. A record is a RESP array of bulk strings, as clients send it, or an
annotation (`#TS:…`). The commands from MULTI to EXEC count as one record, because a server that loaded half of a
transaction would show half of its effect. After a power loss, the end of the file may be cut anywhere. It may also
contain zeros or the bytes of other files, if blocks of the disk were allotted but not written. At its start, the server
silently removes an incomplete last record. If it finds any other damage, it refuses to start.

`scan` reads a file of any size in pieces. This module never writes; `repair.py` decides what to do. The source of the
format is valkey.io, "Persistence" ("Append-only file"). The manifest is that of Redis 7.0 and newer.
"""

import re
from pathlib import Path
from typing import BinaryIO, NamedTuple

__all__ = ["BadManifest", "Manifest", "Scan", "parse_manifest", "scan", "sequence_of"]

LINE_MAX_BYTES = 128
"""Maximum bytes of a header (`*12`, `$2048`) or an annotation; servers write at most 40 bytes."""

WORD_MAX_BYTES = 64
"""Maximum bytes of a command's name."""

BULK_MAX_BYTES = 512 * 1024 * 1024
"""Maximum bytes of one argument: the servers' own bound (proto-max-bulk-len)."""

PIECE_BYTES = 1024 * 1024
"""Bytes that are read at a time."""

TRIES_MAX = 1_000_000
"""Maximum number of record starts and arguments that a search for a whole record after damage reads. A search of this
length takes some seconds."""

TRY_BYTES = 4096
"""Bytes that are read at a time to check one record start."""

_ARRAY = re.compile(rb"\*([1-9][0-9]{0,6})\r\n")
_BULK = re.compile(rb"\$(0|[1-9][0-9]{0,8})\r\n")
_NOTE = re.compile(rb"#[A-Z]+:[^\r\n]*\r\n")
_WORD = re.compile(rb"[A-Za-z][A-Za-z0-9._|-]*")
_NEXT = re.compile(rb"\r\n(?=\*[1-9])")
_ENTRY = re.compile(r"file (?P<name>[^\s\"/]+) seq (?P<seq>[1-9][0-9]*) type (?P<kind>[bhi])(?: .*)?")


class Scan(NamedTuple):
    """The result of scanning a file. `whole_bytes`: the offset where the last whole record ends. `fault`: the problem
    at that offset, "" at the end of the file. `resumes_at`: the offset of a whole record after the fault; None when
    only the end is damaged."""

    whole_bytes: int
    size_bytes: int
    fault: str = ""
    resumes_at: int | None = None


class Manifest(NamedTuple):
    """The files that make up the store: a snapshot (None before the first one) and the later files of commands, in
    order."""

    base: str | None
    increments: tuple[str, ...]

    def text(self) -> str:
        """Return the manifest as the server writes it."""
        base = [] if self.base is None else [(self.base, "b")]
        entries = [*base, *((name, "i") for name in self.increments)]
        return "".join(f"file {name} seq {sequence_of(name)} type {kind}\n" for name, kind in entries)


class BadManifest(Exception):
    """The manifest is not a list of files."""


class _Fault(Exception):
    """No whole record begins at this offset. `arguments`: the number of whole arguments; `ends_at`: the offset at which
    the torn argument should end according to its length, 0 when no argument is torn."""

    def __init__(self, text: str, arguments: int = 0, ends_at: int = 0) -> None:
        super().__init__(text)
        self.arguments = arguments
        self.ends_at = ends_at


def parse_manifest(text: str) -> Manifest:
    """Parse a manifest, leaving out the files of earlier snapshots, which the server is about to delete. Raises
    BadManifest."""
    base: str | None = None
    increments: list[str] = []
    for line in text.splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        entry = _ENTRY.fullmatch(line.strip())
        if entry is None or (entry["kind"] == "b" and base is not None):
            raise BadManifest
        if entry["kind"] == "b":
            base = entry["name"]
        elif entry["kind"] == "i":
            increments.append(entry["name"])
    if base is None and not increments:
        raise BadManifest
    return Manifest(base, tuple(increments))


def sequence_of(name: str) -> int:
    """Return the number of a file, such as 3 of `appendonly.aof.3.incr.aof`; 1 for a name without a number."""
    found = re.search(r"\.([1-9][0-9]*)\.(?:base|incr)\.", name)
    return 1 if found is None else int(found[1])


def scan(path: Path) -> Scan:
    """Find the last whole record of a file of commands and the damage after it. Raises OSError."""
    with path.open("rb", buffering=PIECE_BYTES) as file:
        size = path.stat().st_size
        whole = at = 0
        is_in_transaction = False
        while at < size:
            try:
                word = _record(file)
                if word in (b"MULTI", b"EXEC") and (word == b"EXEC") != is_in_transaction:
                    raise _Fault(f"{word.decode()} out of place")
            except _Fault as fault:
                start = fault.ends_at if at < fault.ends_at <= size else at + 1
                return Scan(whole, size, f"{fault} at byte {at}", _resumption(path, start))
            is_in_transaction = word == b"MULTI" or (is_in_transaction and word != b"EXEC")
            at = file.tell()
            if not is_in_transaction:
                whole = at
        return Scan(whole, size, "" if whole == size else f"a transaction without its end at byte {whole}")


def _record(file: BinaryIO) -> bytes:
    """Read a record and return its command in capitals, b"" for an annotation. Raises _Fault."""
    head = file.readline(LINE_MAX_BYTES)
    if _NOTE.fullmatch(head):
        return b""
    array = _ARRAY.fullmatch(head)
    if array is None:
        raise _Fault("no command")
    word = b""
    for number in range(int(array[1])):
        bulk = _BULK.fullmatch(file.readline(LINE_MAX_BYTES))
        if bulk is None or int(bulk[1]) > BULK_MAX_BYTES:
            raise _Fault("a command with a broken argument", number)
        length = int(bulk[1])
        if number == 0:
            word = file.read(min(length, WORD_MAX_BYTES + 1))
            if len(word) > WORD_MAX_BYTES or not _WORD.fullmatch(word):
                raise _Fault("a command without a name")
        else:
            file.seek(length, 1)
        ends_at = file.tell()
        if file.read(2) != b"\r\n":
            raise _Fault("a command with a torn argument", number, ends_at)
    return word.upper()


def _resumption(path: Path, start: int) -> int | None:
    """Return the offset of the first whole record that begins at or after `start`; None when no whole record follows.

    The file contains blobs as clients sent them, so a blob may contain whole records. Therefore `scan` starts this
    search after a torn argument, if the argument ends inside the file according to its length. If the length is lost,
    or leads past the end of the file, a record inside a blob may be taken for a record of the file. The start of the
    server is then refused and a person must decide, which is safer than cutting off real records. For the same reason,
    this function returns the offset that it tried last when TRIES_MAX is exceeded.
    """
    at = start
    tries = 0
    with path.open("rb") as pieces, path.open("rb", buffering=TRY_BYTES) as file:
        while True:
            pieces.seek(at)
            piece = pieces.read(PIECE_BYTES)
            for found in _NEXT.finditer(piece):
                file.seek(at + found.end())
                try:
                    _record(file)
                except _Fault as fault:
                    tries += 1 + fault.arguments
                    if tries <= TRIES_MAX:
                        continue
                return at + found.end()
            if len(piece) < PIECE_BYTES:
                return None
            at += len(piece) - 3  # the start of a record may lie across two pieces
