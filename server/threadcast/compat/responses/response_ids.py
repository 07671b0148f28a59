"""The ids of responses. An id consists of `resp_`, the request that began the response, and the chat. An id contains
everything that any process needs to find the response in its chat's log. A guessed id is useless, because each chat has
an owner.
"""

import re
import secrets
from typing import NamedTuple

from threadcast_protocol.wire.errors import NotFound
from threadcast_protocol.wire.ids import RESERVED_CHAT_IDS

__all__ = ["ResponseId", "new_response_id", "read_response_id"]

_ID = re.compile(r"resp_([snt])([0-9a-f]{8})([0-9a-f]{16})_([A-Za-z0-9_-]{1,128})")


class ResponseId(NamedTuple):
    """`kind` is s for a response that a message began, n for a response that continues a waiting run, and t for a
    response that the client does not want stored. `created_at` is Unix time in seconds."""

    kind: str
    created_at: int
    chance: str
    chat_id: str

    @property
    def request_id(self) -> str:
        """The `client_request_id` of the command that began the response."""
        return f"resp-{self.kind}{self.created_at:08x}{self.chance}"

    def __str__(self) -> str:
        return f"resp_{self.kind}{self.created_at:08x}{self.chance}_{self.chat_id}"


def new_response_id(chat_id: str, now_seconds: int, *, continues: bool = False, is_stored: bool = True) -> ResponseId:
    """Return an unused id for a response in the chat."""
    kind = "t" if not is_stored else "n" if continues else "s"
    return ResponseId(kind, now_seconds, secrets.token_hex(8), chat_id)


def read_response_id(text: str) -> ResponseId:
    """Return the parts of an id that a client sends.

    Raises:
        NotFound: the id was not made by this server, or its response is not stored.
    """
    found = _ID.fullmatch(text)
    if found is None or found[1] == "t" or found[4] in RESERVED_CHAT_IDS:
        raise NotFound("no such response")
    return ResponseId(found[1], int(found[2], 16), found[3], found[4])
