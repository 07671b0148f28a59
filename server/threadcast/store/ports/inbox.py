"""The inbox of a chat: commands that were accepted and are not consumed yet."""

from enum import Enum
from typing import Literal, Protocol

import msgspec

__all__ = ["Inbox", "InboxEntry", "PostKind", "PostOutcome", "PostRequest", "Posted"]

PostKind = Literal["normal", "exempt", "refusal", "import", "probe"]


class PostOutcome(Enum):
    ACCEPTED = "ACCEPTED"
    DUPLICATE = "DUPLICATE"
    MISMATCH = "MISMATCH"
    FULL = "FULL"
    FOREIGN = "FOREIGN"
    GONE = "GONE"
    UNKNOWN = "UNKNOWN"


class PostRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A command to store. `nonce` is unique per HTTP request and the same for its retries. `creates`: the command may
    create the chat.

    `kind` sets the number of waiting commands at which the post is refused: for normal 100 in inbox and queue together;
    for exempt and import 1,000, and for refusal 20, in the inbox alone. A probe is never stored: its outcome tells
    whether the command was accepted before (DUPLICATE). `charged_bytes`, the size of data that the command will copy,
    counts in the owner's account beside the body until the chat is measured. `about` is the id of the refused request:
    if that request was accepted before, the refusal is a DUPLICATE and is not stored.
    """

    chat_id: str
    owner: str
    principal: bytes
    request_id: str
    digest: str
    nonce: str
    body: bytes
    kind: PostKind = "normal"
    creates: bool = True
    about: str = ""
    charged_bytes: int = 0


class Posted(msgspec.Struct, frozen=True):
    """The outcome of a post. `inbox_id` is the inbox id of the stored command, None if no command was stored."""

    outcome: PostOutcome
    inbox_id: str | None = None


class InboxEntry(msgspec.Struct, frozen=True):
    inbox_id: str
    request_id: str
    principal: bytes
    body: bytes


class Inbox(Protocol):
    """Accepts commands and hands them to the owner of their chat."""

    async def post(self, request: PostRequest) -> Posted: ...

    async def read_inbox(self, chat_id: str, limit: int) -> list[InboxEntry]:
        """Return the oldest commands that no append has consumed."""

    async def dead_letter(self, chat_id: str, entry: InboxEntry, reason: str) -> None: ...
