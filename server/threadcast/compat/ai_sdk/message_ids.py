"""Ids of the AI SDK's user messages, kept in the request ids of the commands that add them.

A page chooses the ids of its user messages and expects the same ids in answers. The command that adds such a message
has a request id that contains the page's id, and the message keeps this request id (`Message.client_request_id`).
For messages of other clients, pages get the server's message id. The prefix determines the form: `ui-ID` and
`ub-BASE64`, or for an edit `ue-NONCE-ID` and `uf-NONCE-BASE64`, since a message may be edited several times under one
id.
"""

import base64
import binascii
import secrets

from threadcast_protocol.wire.errors import BadRequest
from threadcast_protocol.wire.ids import is_id
from threadcast_protocol.wire.messages import Message

__all__ = ["MESSAGE_ID_MAX_BYTES", "edit_request_id", "request_id_of", "ui_id_of"]

MESSAGE_ID_MAX_BYTES = 80
"""The maximum bytes of a UI message's id, in UTF-8. The AI SDK makes ids of 16 characters, and UUIDs have 36. As base64
and with its prefix, an id of this size fits the 128 characters of a request id."""

_NONCE_CHARACTERS = 8


def request_id_of(ui_id: str, path: str) -> str:
    """Return the request id of the command that adds the UI message `ui_id`. Equal ids give equal request ids, so that
    a repeated request adds the message once. Raises BadRequest at `path` for an id that is empty or too long."""
    form, word = _word(ui_id, path)
    return f"u{'i' if form else 'b'}-{word}"


def edit_request_id(ui_id: str, path: str) -> str:
    """Return a new request id for an edit of the UI message `ui_id`. Raises BadRequest as `request_id_of`."""
    form, word = _word(ui_id, path)
    return f"u{'e' if form else 'f'}-{secrets.token_hex(_NONCE_CHARACTERS // 2)}-{word}"


def ui_id_of(message: Message) -> str:
    """Return the id under which pages know the message."""
    prefix, _, rest = (message.client_request_id or "").partition("-")
    if prefix in ("ue", "uf"):
        rest = rest[_NONCE_CHARACTERS + 1 :]
    if rest and prefix in ("ui", "ue"):
        return rest
    if rest and prefix in ("ub", "uf"):
        try:
            return base64.urlsafe_b64decode(rest + "=" * (-len(rest) % 4)).decode()
        except (binascii.Error, ValueError):
            pass  # another client chose a request id with this prefix
    return message.message_id


def _word(ui_id: str, path: str) -> tuple[bool, str]:
    try:
        raw = ui_id.encode()
    except UnicodeEncodeError:
        raise BadRequest("the id of a message must be valid Unicode", path=path) from None
    if not 0 < len(raw) <= MESSAGE_ID_MAX_BYTES:
        raise BadRequest(f"the id of a message has 1 to {MESSAGE_ID_MAX_BYTES} bytes", path=path)
    return (True, ui_id) if is_id(ui_id) else (False, base64.urlsafe_b64encode(raw).decode().rstrip("="))
