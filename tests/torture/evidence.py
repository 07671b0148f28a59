"""The evidence of a torture run as plain values: commands, histories, readers, tool runs.

`audit.py`, `poster.py` and the readers gather the evidence, and `verdict.py` judges by the evidence alone. Tests of the
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

    `answers` has the statuses of its HTTP answers in order. `is_seen` is set once its id has appeared in the poster's
    own stream, and `was_cancelled` once a DELETE has answered that it took the command back. `lost_at` is the time
    (loop clock) at which an answer was last lost or gave the outcome as unknown; it is minus infinity if that never
    happened.
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
        """Return the number of answers that report a newly stored command; there must be at most one such answer."""
        return sum(answer in ("accepted", "applied", "aborted") for answer in self.answers)

    @property
    def is_accepted(self) -> bool:
        """Return whether the server accepted the command. An answer `duplicate` means that an earlier post, whose
        answer was lost, was accepted. A driver that got no answer records `seen` when it finds the command in its
        stream."""
        return self.kept_count > 0 or "duplicate" in self.answers or "seen" in self.answers


class ChatEvidence(msgspec.Struct, kw_only=True):
    """One chat at the end of the run. `entries` holds all entries that the chat's log ever held, oldest first, with
    private facts.

    `loaded` is the state that an owner would load now; `http_snapshot` is the answer of GET /v1/chats/{id}. `accepted`
    has the order of acceptance: the inbox id of each request id that the store still remembers.
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
    """A line of `tools_app.py`. A model may reuse the id of a removed call, so a call is identified by its name and its
    run; a takeover keeps the run."""

    kind: str
    chat_id: str
    run_id: str
    call_id: str


class Evidence(msgspec.Struct, kw_only=True):
    """The evidence of a run. `blobs` holds the bytes that HTTP returned, by `chat/hash`; blobs that could not be
    fetched are missing. `buried` holds the commands of earlier lives of a chat, and `brought` the request ids of
    messages that an import added to the present life."""

    chats: list[ChatEvidence]
    commands: list[Asked]
    readers: list[ReaderEnd]
    tool_runs: list[ToolRun]
    blobs: dict[str, bytes] = {}
    buried: list[Asked] = []
    brought: dict[str, set[str]] = {}
    mishaps: list[Mishap] = []
