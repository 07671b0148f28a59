"""Defines the inbox of a chat, which contains the accepted commands that are not consumed yet."""

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
    """A command to store. `nonce` is unique for each HTTP request, and the same for retries of its post. `creates` is
    True if the command may create the chat.

    `kind` sets the number of waiting commands at which the post is refused. A normal command is refused at 100 commands
    in the inbox and the queue together. For the other kinds only the inbox counts: exempt and import are refused at
    1,000 commands, refusal at 20. A probe is never stored; its outcome is DUPLICATE if the command was accepted before.
    `charged_bytes` is the size of the data that the command will copy. Until the chat is measured, `charged_bytes`
    counts in the owner's account in addition to the body. `about` is the id of the refused request. If that request was
    accepted before, the refusal is a DUPLICATE and is not stored.
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
    """Stores accepted commands until the owner of their chat consumes them."""

    async def post(self, request: PostRequest) -> Posted: ...

    async def read_inbox(self, chat_id: str, limit: int) -> list[InboxEntry]:
        """Return the oldest commands that no append has consumed."""

    async def dead_letter(self, chat_id: str, entry: InboxEntry, reason: str) -> None: ...
