"""The evidence of a torture run as plain values: commands, histories, readers, tool runs.

`audit.py`, `poster.py` and the readers gather it, and `verdict.py` judges it and receives nothing else. Tests of the
verdict write evidence by hand.
"""

import math
from typing import TypeAlias

import msgspec

from threadcast.chat.entries import RawEntry
from threadcast.store.ports import Loaded

__all__ = ["Asked", "ChatEvidence", "Evidence", "InboxId", "Mishap", "ReaderEnd", "ToolRun"]


InboxId: TypeAlias = tuple[int, int]
"""The inbox id of a command: milliseconds of the store's clock, and a number within that millisecond."""


class Asked(msgspec.Struct, kw_only=True):
    """One command, and the answers to all its posts.

    `answers` are the statuses of HTTP answers in their order. `is_seen`: its id came by in the poster's own stream.
    `was_cancelled`: a DELETE said that it took this one back. `lost_at`: when (on the loop's clock) an answer to it was
        last lost or said that the outcome is unknown; minus infinity: never.
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
        """Count the answers that say that the server stored the command now; there must be at most one."""
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
    """A broken promise that was noticed during the run."""

    kind: str
    chat_id: str
    words: str


class ReaderEnd(msgspec.Struct, frozen=True, kw_only=True):
    """The final state of a subscriber; `snapshot` is that state as JSON, or None when the subscriber never had a
    state."""

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
