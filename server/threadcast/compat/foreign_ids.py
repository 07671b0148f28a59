"""Maps the ids of other servers' formats to ids of chats.

An id that fits our pattern stays as it is (PROTOCOL §1). Any other id becomes a keyed hash of the id and of the caller,
so that two callers who choose the same id get two chats, and no caller finds another caller's chat by guessing its id.
"""

import hmac

from threadcast_protocol.wire.errors import BadRequest
from threadcast_protocol.wire.ids import RESERVED_CHAT_IDS, is_id

__all__ = ["FOREIGN_ID_MAX_CHARACTERS", "call_id_of", "chat_id_of", "read_call_id"]

FOREIGN_ID_MAX_CHARACTERS = 512
"""The maximum length of an id that is mapped. The formats set no bound; ids in practice are UUIDs, or paths of at most
a hundred characters."""


def chat_id_of(foreign_id: str, door: str, owner: str, secret: bytes, path: str = "") -> str:
    """Return the id of the chat that `owner` calls `foreign_id` at this door. `secret` is the store's secret
    (`Facts.secret`); `path` is the path of the id in the caller's body.

    Raises:
        BadRequest: the id is empty or too long.
    """
    if not 0 < len(foreign_id) <= FOREIGN_ID_MAX_CHARACTERS:
        raise BadRequest(f"the id of a chat has 1 to {FOREIGN_ID_MAX_CHARACTERS} characters", path=path or None)
    if is_id(foreign_id) and foreign_id not in RESERVED_CHAT_IDS:
        return foreign_id
    words = "\0".join((door, owner, foreign_id)).encode("utf-8", "surrogatepass")
    return f"{door}-{hmac.digest(secret, words, 'sha256').hex()[:40]}"


def call_id_of(chat_id: str, tool_call_id: str) -> str:
    """Return the id that a client gets for a call of one of its own tools. The id contains the chat's id, so that the
    call is found even if the client does not know chats."""
    return f"{tool_call_id}@{chat_id}"


def read_call_id(call_id: str) -> tuple[str, str]:
    """Return the call's id in the chat, and the chat's id, which is '' if the text names no chat. Ids of chats have no
    `@`."""
    own, mark, chat_id = call_id.rpartition("@")
    return (own, chat_id) if mark else (call_id, "")
