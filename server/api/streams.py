"""Running streams: which chats they carry, changed from any process; and "somebody is typing" (PROTOCOL §4).

Checks what the caller may see and asks the process that holds the stream (`relay/many.py`); where that is, nobody here
knows. Nothing is stored. Only the principal that opened a stream can find it.
"""

import secrets

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from protocol.bodies import decode_body
from protocol.errors import BadRequest, NotFound, Unavailable
from protocol.ids import check_chat_id, check_id
from protocol.places import CHATS_MAX
from server.api.edge import edge_of, read_body
from server.api.errors import answer
from server.relay.many import Change, ask_for_change

__all__ = ["change_stream", "read_change", "read_typing", "type_in_chat"]

BODY_MAX_BYTES = 262_144
"""64 chats to add with an id of 2.5 kB each, and 64 to remove."""


class Addition(msgspec.Struct, frozen=True):
    chat_id: str
    place: str = msgspec.field(name="from", default="")


class StreamChange(msgspec.Struct, frozen=True):
    add: list[Addition] = []
    remove: list[str] = []


class TypingNotice(msgspec.Struct, frozen=True):
    typing: bool
    stream_id: str = ""


_changes = msgspec.json.Decoder(StreamChange)
_typings = msgspec.json.Decoder(TypingNotice)


async def change_stream(request: Request) -> Response:
    """`POST /v1/streams/{stream_id}` `{"add":[{"chat_id","from"?}],"remove":["chat_id"]}`: done when it answers 200."""
    edge = edge_of(request)
    principal = edge.principal(request.scope)
    stream_id = check_id(request.path_params["stream_id"], "stream_id")
    body = read_change(await read_body(request, BODY_MAX_BYTES))
    for addition in body.add:
        await edge.own_or_new(addition.chat_id, principal)
    pairs = [(addition.chat_id, addition.place) for addition in body.add]
    change = Change(secrets.token_hex(16), pairs, body.remove)
    try:
        outcome = await ask_for_change(edge.store, principal.id, stream_id, change)
    except TimeoutError:
        raise Unavailable("the process that holds the stream does not answer; try again") from None
    if outcome is None:
        raise NotFound("no such stream; open it with GET /v1/chats/subscribe?stream_id=…")
    if outcome.is_full:
        raise BadRequest(f"a stream holds at most {CHATS_MAX} chats; remove some, or open another one", path="/add")
    return answer(200, {"status": "applied"})


async def type_in_chat(request: Request) -> Response:
    """`POST /v1/chats/{chat_id}/typing` `{"typing": BOOL, "stream_id"?}`: tell the others, not that stream."""
    edge = edge_of(request)
    principal = edge.principal(request.scope)
    chat_id = check_chat_id(request.path_params["chat_id"])
    body = read_typing(await read_body(request, BODY_MAX_BYTES))
    await edge.own(chat_id, principal)
    await edge.hub.presence.type(chat_id, principal.id, body.typing, body.stream_id)
    return Response(status_code=204)


def read_change(body: bytes) -> StreamChange:
    """Raises BadRequest."""
    change = decode_body(_changes, body)
    if len(change.add) > CHATS_MAX or len(change.remove) > CHATS_MAX:
        raise BadRequest(f"a stream holds at most {CHATS_MAX} chats; open another one", path="/add")
    for chat_id in (*(addition.chat_id for addition in change.add), *change.remove):
        check_chat_id(chat_id)
    return change


def read_typing(body: bytes) -> TypingNotice:
    """Raises BadRequest."""
    notice = decode_body(_typings, body)
    if notice.stream_id:
        check_id(notice.stream_id, "stream_id")
    return notice
