"""What a torture run leaves behind for its verdict, as plain values: commands, histories, readers, tool runs.

Gathered by `audit.py`, `poster.py` and the readers; judged by `verdict.py`, which is given nothing else. Tests make it
by hand, and doctor it.
"""

import math
from typing import TypeAlias

import msgspec

from protocol.entries import RawEntry
from server.store.port import Loaded

__all__ = ["Asked", "ChatEvidence", "Evidence", "InboxId", "Mishap", "ReaderEnd", "ToolRun"]


InboxId: TypeAlias = tuple[int, int]
"""Where a command lay in its inbox: milliseconds of the store's clock, and a number among those of one millisecond."""


class Asked(msgspec.Struct, kw_only=True):
    """One command and what its poster was told, over all its posts.

    `answers` are the statuses of HTTP answers in their order. `is_seen`: its id came by in the poster's own stream.
    `was_cancelled`: a DELETE said that it took this one back. `lost_at`: when (on the loop's clock) an answer to it was
    last lost, or said that nobody knows; minus infinity: never.
    """

    chat_id: str
    request_id: str
    type: str
    body: bytes
    posts: int = 0
    answers: list[str] = []
    is_seen: bool = False
    was_cancelled: bool = False
    lost_at: float = -math.inf

    @property
    def kept_count(self) -> int:
        """How often the server said that it laid the command down; more than once is a lie."""
        return sum(answer in ("accepted", "applied", "aborted") for answer in self.answers)

    @property
    def is_accepted(self) -> bool:
        """A duplicate's first post was accepted, though its answer was lost; `seen` is what a driver writes that got no
        answer and found the command in its stream."""
        return self.kept_count > 0 or "duplicate" in self.answers or "seen" in self.answers


class ChatEvidence(msgspec.Struct, kw_only=True):
    """One chat at the end. `entries` are all that its log ever held, oldest first, private facts included.

    `loaded` is what an owner would read now; `http_snapshot` the answer of GET /v1/chats/{id}. `accepted` has the order
    of acceptance: the inbox id of each request id that the store still remembers.
    """

    chat_id: str
    entries: list[RawEntry]
    loaded: Loaded
    inbox_count: int = 0
    http_snapshot: bytes = b""
    accepted: dict[str, InboxId] = {}


class Mishap(msgspec.Struct, frozen=True):
    """Something that must not happen, noticed while it happened."""

    kind: str
    chat_id: str
    words: str


class ReaderEnd(msgspec.Struct, frozen=True, kw_only=True):
    """What a subscriber held in the end; `snapshot` is its state as JSON, None when it never had one."""

    name: str
    chat_id: str
    position: int
    snapshot: bytes | None


class ToolRun(msgspec.Struct, frozen=True):
    """A line of `tools_app.py`. A model may use the id of a call again whose message was removed, so the run (which a
    takeover keeps) belongs to a call's name."""

    kind: str
    chat_id: str
    run_id: str
    call_id: str


class Evidence(msgspec.Struct, kw_only=True):
    """`blobs` are bytes that HTTP gave, by `chat/hash`; what was not to be had is not there. `buried` are
    commands of earlier lives of a chat, `brought` request ids of messages that an import brought into this one."""

    chats: list[ChatEvidence]
    commands: list[Asked]
    readers: list[ReaderEnd]
    tool_runs: list[ToolRun]
    blobs: dict[str, bytes] = {}
    buried: list[Asked] = []
    brought: dict[str, set[str]] = {}
    mishaps: list[Mishap] = []
