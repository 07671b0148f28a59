"""The ids of messages that AG-UI clients choose, and the ids that clients see. Pure.

Clients resend their whole history, so the same client id must always map to the same stored message. The command that
adds a message of the user has a request id made from the client's id, and the message stores this request id
(`Message.client_request_id`): `agui-ID` if the client's id fits our pattern, `agux-BASE64` if the id has another form
but is short, else `aguh-HASH`. A message of a restored history keeps the client's id, or gets `agm-HASH`. A hash cannot
be reversed: the client that knows the id sends the id with each request, and `SentIds` reads it there. Other clients
see the id of the stored message.
"""

import base64
import binascii
import hashlib
from collections.abc import Iterable

from threadcast.compat.ag_ui.bodies import SentMessage
from threadcast_protocol.wire.ids import is_id
from threadcast_protocol.wire.messages import Message

__all__ = ["IDS_KEY", "SentIds", "request_id_of", "restored_id_of"]

IDS_KEY = "ag_ui_ids"
"""The key in a message's context for the ids of the client's messages, if several messages of the client became this
message."""

_ENCODED_MAX_BYTES = 80
"""The maximum length of an id that is stored as base64: with its prefix it fits the 128 characters of a request id
(PROTOCOL §1)."""

_PLAIN_MAX_CHARACTERS = 120


def request_id_of(foreign_id: str) -> str:
    """Return the request id of the command that adds the user's message `foreign_id`; equal ids give equal request
    ids."""
    if is_id(foreign_id) and len(foreign_id) <= _PLAIN_MAX_CHARACTERS:
        return f"agui-{foreign_id}"
    raw = foreign_id.encode("utf-8", "surrogatepass")
    if len(raw) <= _ENCODED_MAX_BYTES:
        return f"agux-{base64.urlsafe_b64encode(raw).decode().rstrip('=')}"
    return f"aguh-{_hash(foreign_id)}"


def restored_id_of(foreign_id: str) -> str:
    """Return the id under which a message of a restored history is kept."""
    return foreign_id if is_id(foreign_id) else f"agm-{_hash(foreign_id)}"


def _hash(foreign_id: str) -> str:
    return hashlib.sha256(foreign_id.encode("utf-8", "surrogatepass")).hexdigest()[:40]


class SentIds:
    """Maps between the client's ids in one request and the stored messages."""

    def __init__(self, messages: Iterable[SentMessage] = ()) -> None:
        self._by_request: dict[str, str] = {}
        self._by_id: dict[str, str] = {}
        self._by_call: dict[str, str] = {}
        for message in messages:
            if message.role == "tool":
                self._by_call[message.tool_call_id] = message.id
            else:
                self._by_request[request_id_of(message.id)] = message.id
                self._by_id[restored_id_of(message.id)] = message.id

    def shown_id(self, message: Message) -> str:
        """Return the id under which the client sees the message."""
        if message.role == "tool":
            return self._by_call.get(message.tool_call_id or "", message.message_id)
        if (known := self._by_id.get(message.message_id)) is not None:
            return known
        if message.role != "user":
            return message.message_id
        request_id = message.client_request_id or ""
        return self._by_request.get(request_id) or _plain_id(request_id) or message.message_id

    def has_result_of(self, call_id: str) -> bool:
        """Return whether the client sent a result of this call, so that it already shows a result."""
        return call_id in self._by_call


def _plain_id(request_id: str) -> str | None:
    """Return the client's id in a request id; None if the request id contains no readable id."""
    prefix, _, word = request_id.partition("-")
    if prefix == "agui":
        return word or None
    if prefix != "agux":
        return None
    try:
        return base64.urlsafe_b64decode(word + "=" * (-len(word) % 4)).decode() or None
    except (binascii.Error, ValueError):
        return None  # another client chose a request id with this prefix
