"""Threadcast's client for Python: live chats, commands that are not lost, answers as they are written.

    from threadcast import Client

Docs: docs/client.md. The wire: protocol/PROTOCOL.md. This package imports `protocol` and never `server`.
"""

from threadcast.answer import Answer
from threadcast.backoff import Patience
from threadcast.chat import Chat
from threadcast.chats import Chats
from threadcast.client import Client
from threadcast.connection import Connection
from threadcast.errors import (
    AnswerFailed,
    ChatLeft,
    OutboxFull,
    Refused,
    ThreadcastError,
    Unauthorized,
    Unreachable,
    Unreadable,
)
from threadcast.ids import new_request_id
from threadcast.outbox import FileOutbox, MemoryOutbox, Outbox
from threadcast.reading import RawEvent
from threadcast.sent import Sent
from threadcast.tool_calls import ToolAnswer

__all__ = [
    "Answer",
    "AnswerFailed",
    "Chat",
    "ChatLeft",
    "Chats",
    "Client",
    "Connection",
    "FileOutbox",
    "MemoryOutbox",
    "Outbox",
    "OutboxFull",
    "Patience",
    "RawEvent",
    "Refused",
    "Sent",
    "ThreadcastError",
    "ToolAnswer",
    "Unauthorized",
    "Unreachable",
    "Unreadable",
    "new_request_id",
]
