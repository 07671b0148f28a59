"""Ids and positions: how they are made, how they look, how they are ordered.

Every id that a client may choose matches one pattern before it reaches a key, a path or a log line (DESIGN §11).
Three kinds of place exist and must not be confused. An `EntryId` names one entry of a chat's log. A `Head` is an
entry id with the digest of everything before it: two equal heads mean two equal histories (DISPATCH §3). A
`Position` is what a client holds: which public event it saw last, in which life of the log, counted from which
snapshot (PROTOCOL §4).
"""

import re
from collections.abc import Callable
from typing import Annotated, NamedTuple, TypeAlias

from msgspec import Meta

from protocol.errors import BadRequest

__all__ = [
    "NAME_MAX_CHARACTERS",
    "RESERVED_CHAT_IDS",
    "EntryId",
    "Head",
    "Id",
    "Name",
    "NewId",
    "Position",
    "check_chat_id",
    "check_id",
]

NewId = Callable[[str], str]
"""Makes an unused id from a short prefix (`msg`, `run`, `call`). Passed in, so that the core stays pure."""

ID_PATTERN = r"^[A-Za-z0-9_-]{1,128}$(?!\n)"
"""`$` alone would let a trailing newline through in Python."""
_ID = re.compile(r"[A-Za-z0-9_-]{1,128}")

NAME_MAX_CHARACTERS = 256
"""Names that are no ids (models, tools, scopes): the longest in use are paths of repositories, below 200."""

Id: TypeAlias = Annotated[str, Meta(pattern=ID_PATTERN)]
Name: TypeAlias = Annotated[str, Meta(max_length=NAME_MAX_CHARACTERS)]
"""As fields of commands and parameters."""

RESERVED_CHAT_IDS = frozenset({"subscribe", "feed", "import"})
"""Path segments under /v1/chats that are routes (PROTOCOL §1)."""


def check_id(value: str, what: str) -> str:
    """Return `value` if it is 1–128 characters of [A-Za-z0-9_-] (PROTOCOL §1).

    Raises:
        BadRequest: it is not; the sentence names `what`.
    """
    if not _ID.fullmatch(value):
        raise BadRequest(f"{what} must be 1 to 128 characters of A-Z a-z 0-9 _ -", path=f"/{what}")
    return value


def check_chat_id(value: str) -> str:
    """`check_id` for chats, which may also not be called like a route.

    Raises:
        BadRequest: malformed or reserved.
    """
    if value in RESERVED_CHAT_IDS:
        raise BadRequest(f"chat_id {value!r} is reserved; choose another", path="/chat_id")
    return check_id(value, "chat_id")


class EntryId(NamedTuple):
    """`<epoch>-<n>`: the id of one entry of a log, as Redis streams order it (both numbers, left first)."""

    epoch: int
    n: int

    def __str__(self) -> str:
        return f"{self.epoch}-{self.n}"

    @classmethod
    def parse(cls, text: str) -> "EntryId":
        epoch, _, n = text.partition("-")
        return cls(int(epoch), int(n))


class Head(NamedTuple):
    """The head string `<id> <digest> <p>`: a place in a log and, by its chained digest, everything before it.

    `position` is the position of the last public event up to here.  Before the first entry the
    head string is empty.
    """

    entry_id: EntryId
    digest: str
    position: int

    def __str__(self) -> str:
        return f"{self.entry_id} {self.digest} {self.position}"

    @classmethod
    def parse(cls, text: str) -> "Head":
        entry_id, digest, position = text.split(" ")
        return cls(EntryId.parse(entry_id), digest, int(position))


_POSITION = re.compile(r"([0-9]{1,19})-([0-9]{1,15})-([0-9]{1,15})")


class Position(NamedTuple):
    """`<epoch>-<position>-<base>`, the SSE id of one event (PROTOCOL §4).

    `position` counts the chat's public events over its whole life; `base` is the position of the snapshot that the
    client started from, so that `seq = position - base`.
    """

    epoch: int
    position: int
    base: int

    def __str__(self) -> str:
        return f"{self.epoch}-{self.position}-{self.base}"

    @property
    def seq(self) -> int:
        return self.position - self.base

    @classmethod
    def parse(cls, text: str) -> "Position | None":
        """The position, or None for anything else: a client with a bad id gets a snapshot, never an error."""
        match = _POSITION.fullmatch(text)
        if match is None:
            return None
        position = cls(int(match[1]), int(match[2]), int(match[3]))
        return position if position.base <= position.position else None
