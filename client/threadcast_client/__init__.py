"""Threadcast's client for Python: live chats, commands that are not lost, answers as they are written.

    from threadcast import Client

See docs/client.md for how to use it, and protocol/PROTOCOL.md for the wire. The package imports `threadcast_protocol`
and no module of the server.
"""

from threadcast_client.answer import Answer
from threadcast_client.backoff import RetryPolicy
from threadcast_client.chat import Chat
from threadcast_client.chats import Chats
from threadcast_client.client import Client
from threadcast_client.connection import Connection
from threadcast_client.errors import (
    AnswerFailed,
    ChatLeft,
    OutboxFull,
    Refused,
    ThreadcastError,
    Unauthorized,
    Unreachable,
    Unreadable,
)
from threadcast_client.ids import new_request_id
from threadcast_client.outbox import FileOutbox, MemoryOutbox, Outbox
from threadcast_client.reading import RawEvent
from threadcast_client.sent import Sent
from threadcast_client.tool_calls import ToolAnswer

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
    "RawEvent",
    "Refused",
    "RetryPolicy",
    "Sent",
    "ThreadcastError",
    "ToolAnswer",
    "Unauthorized",
    "Unreachable",
    "Unreadable",
    "new_request_id",
]
