"""Ids and positions: their format, their order and their parsers.

Every id that a client may choose is matched against one pattern before the id is used in a key, a path or a log line
(DESIGN §11). Three types mark a place in a log and must not be confused. An `EntryId` identifies one entry of a chat's
log. A `Head` is an entry id with the digest of all entries up to it: two equal heads mean two equal histories (DISPATCH
§3). A `Position` is the state of a client: the last public event that the client saw, the epoch of the log, and the
position of the snapshot from which the client counts (PROTOCOL §4).
"""

import re
from collections.abc import Callable
from typing import Annotated, NamedTuple, TypeAlias

from msgspec import Meta

from threadcast_protocol.wire.errors import BadRequest

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
    "is_id",
]

NewId = Callable[[str], str]
"""A function that returns a new id with a short prefix (`msg`, `run`, `call`). The core gets this function as an
argument, so that it stays pure."""

ID_PATTERN = r"^[A-Za-z0-9_-]{1,128}$(?!\n)"
"""The pattern of an id. The lookahead is needed because in Python `$` also matches before a trailing newline."""
ID_OR_EMPTY_PATTERN = r"^[A-Za-z0-9_-]{0,128}$(?!\n)"
_ID = re.compile(r"[A-Za-z0-9_-]{1,128}")

NAME_MAX_CHARACTERS = 256
"""The maximum length of names of models, tools and scopes. The longest names in use are paths of repositories, below
200 characters."""

Id: TypeAlias = Annotated[str, Meta(pattern=ID_PATTERN)]
Name: TypeAlias = Annotated[str, Meta(max_length=NAME_MAX_CHARACTERS)]
"""The name of a model, a tool or a scope, in commands and parameters."""

RESERVED_CHAT_IDS = frozenset({"subscribe", "feed", "import"})
"""Words that cannot be chat ids, because they are routes under /v1/chats (PROTOCOL §1)."""


def is_id(value: str) -> bool:
    """Return whether `value` fits the pattern of ids (PROTOCOL §1)."""
    return _ID.fullmatch(value) is not None


def check_id(value: str, what: str) -> str:
    """Return `value` if it is 1–128 characters of [A-Za-z0-9_-] (PROTOCOL §1).

    Raises:
        BadRequest: `value` does not match; the sentence names `what`.
    """
    if not is_id(value):
        raise BadRequest(f"{what} must be 1 to 128 characters of A-Z a-z 0-9 _ -", path=f"/{what}")
    return value


def check_chat_id(value: str) -> str:
    """Return `value` if it may be the id of a chat: a valid id that is not reserved.

    Raises:
        BadRequest: the id is malformed or reserved.
    """
    if value in RESERVED_CHAT_IDS:
        raise BadRequest(f"chat_id {value!r} is reserved; choose another", path="/chat_id")
    return check_id(value, "chat_id")


class EntryId(NamedTuple):
    """The id of one entry of a log, `<epoch>-<n>`. Ids are ordered as in Redis streams: by epoch, then by n."""

    epoch: int
    n: int

    def __str__(self) -> str:
        return f"{self.epoch}-{self.n}"

    @classmethod
    def parse(cls, text: str) -> "EntryId":
        """Parse the string form. Raises ValueError for any other string."""
        epoch, _, n = text.partition("-")
        return cls(int(epoch), int(n))


class Head(NamedTuple):
    """A place in a log together with the digest of its history; written as `<entry id> <digest> <position>`.

    `digest` covers all entries up to this entry, because each digest includes the previous digest. `position` is the
    position of the last public event up to this entry. Before the first entry the head string is empty.
    """

    entry_id: EntryId
    digest: str
    position: int

    def __str__(self) -> str:
        return f"{self.entry_id} {self.digest} {self.position}"

    @classmethod
    def parse(cls, text: str) -> "Head":
        """Parse the string form. Raises ValueError for any other string."""
        entry_id, digest, position = text.split(" ")
        return cls(EntryId.parse(entry_id), digest, int(position))


_POSITION = re.compile(r"([0-9]{1,19})-([0-9]{1,15})-([0-9]{1,15})")


class Position(NamedTuple):
    """The position of a client in a chat; written as the SSE id `<epoch>-<position>-<base>` (PROTOCOL §4).

    `position` counts all public events of the chat from its creation. `base` is the position of the snapshot from which
    the client started, so that `seq = position - base`.
    """

    epoch: int
    position: int
    base: int

    def __str__(self) -> str:
        return f"{self.epoch}-{self.position}-{self.base}"

    @property
    def seq(self) -> int:
        """The number of the event in the client's stream, which counts from the snapshot."""
        return self.position - self.base

    @classmethod
    def parse(cls, text: str) -> "Position | None":
        """Parse a position. Returns None for any other text, because a client with an invalid id gets a snapshot, never
        an error."""
        match = _POSITION.fullmatch(text)
        if match is None:
            return None
        position = cls(int(match[1]), int(match[2]), int(match[3]))
        return position if position.base <= position.position else None
