"""The endpoints that change the chats of a running stream, and that report that a user is typing (PROTOCOL §4).

`change_stream` checks the caller's rights and publishes the change; the process that serves the stream answers
(`fanout/many_chats.py`). Nothing is stored. Only the principal that opened a stream can change it.
"""

import secrets

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from threadcast.api.edge import caller_and_chat_of, caller_of, read_json
from threadcast.api.errors import answer
from threadcast.api.operation import NOT_FOUND, UNAVAILABLE, Answer, Operation
from threadcast.fanout.admissions import OpenedTooFast
from threadcast.fanout.many_chats import Change, ask_for_change
from threadcast_protocol.framing.stream_ids import CHATS_MAX
from threadcast_protocol.wire.bodies import decode_body
from threadcast_protocol.wire.errors import BadRequest, NotFound, RateLimited, Unavailable
from threadcast_protocol.wire.http import Status, StreamChange, TypingNotice
from threadcast_protocol.wire.ids import check_chat_id, check_id

__all__ = ["change_stream", "read_change", "read_typing", "type_in_chat"]

BODY_MAX_BYTES = 262_144
"""Maximum bytes of the body: enough for 64 chats to add, with ids of 2.5 kB each, and 64 chats to remove."""


_changes = msgspec.json.Decoder(StreamChange)
_typings = msgspec.json.Decoder(TypingNotice)


@Operation(
    "POST",
    "/v1/streams/{stream_id}",
    "changeStream",
    "Add chats to a running stream, and remove others. Any process accepts the request.",
    tag="stream",
    body=StreamChange,
    answers={200: Answer("The stream has changed; snapshots follow on it.", Status)},
    errors={
        400: f"`bad_request`: a malformed id or body, or more than {CHATS_MAX} chats.",
        404: "`not_found`: no such stream, or a chat that the caller has deleted.",
        429: "`rate_limited`: the caller's streams show as many chats as they may, or chats were added too fast.",
    }
    | UNAVAILABLE,
)
async def change_stream(request: Request) -> Response:
    """`POST /v1/streams/{stream_id}` `{"add":[{"chat_id","from"?}],"remove":["chat_id"]}`: changes the stream before it
    answers 200."""
    edge, principal = caller_of(request)
    stream_id = check_id(request.path_params["stream_id"], "stream_id")
    body = read_change(await read_json(request, BODY_MAX_BYTES))
    for addition in body.add:
        await edge.is_hidden(addition.chat_id, principal)  # raises NotFound; the stream checks the chat again
    pairs = [(addition.chat_id, addition.last_event_id) for addition in body.add]
    change = Change(secrets.token_hex(16), pairs, body.remove)
    try:
        outcome = await ask_for_change(edge.store, principal.id, stream_id, change)
    except TimeoutError:
        raise Unavailable("the process that serves the stream does not answer; try again") from None
    if outcome is None:
        raise NotFound("no such stream; open it with GET /v1/chats/subscribe?stream_id=…")
    if outcome.retry_after_seconds:
        raise OpenedTooFast(outcome.refusal, outcome.retry_after_seconds)
    if outcome.refusal:
        raise RateLimited(outcome.refusal)
    if outcome.is_full:
        raise BadRequest(f"a stream holds at most {CHATS_MAX} chats; remove some, or open another one", path="/add")
    return answer(200, Status("applied"))


@Operation(
    "POST",
    "/v1/chats/{chat_id}/typing",
    "typeInChat",
    "Tell the readers that asked for presence whether the user is typing. Sent at most once a second, and not stored.",
    tag="stream",
    body=TypingNotice,
    answers={204: Answer("The present readers have been told.", media_type="")},
    errors={400: "`bad_request`: a malformed id or body."} | NOT_FOUND | UNAVAILABLE,
)
async def type_in_chat(request: Request) -> Response:
    """`POST /v1/chats/{chat_id}/typing` `{"typing": BOOL, "stream_id"?}`: tells all readers except that stream."""
    edge, principal, chat_id = caller_and_chat_of(request)
    body = read_typing(await read_json(request, BODY_MAX_BYTES))
    await edge.own(chat_id, principal)
    await edge.hub.presence.type(chat_id, principal.id, body.typing, body.stream_id)
    return Response(status_code=204)


def read_change(body: bytes) -> StreamChange:
    """Decode the body of `change_stream`. Raises BadRequest."""
    change = decode_body(_changes, body)
    for chat_id in (*(addition.chat_id for addition in change.add), *change.remove):
        check_chat_id(chat_id)
    return change


def read_typing(body: bytes) -> TypingNotice:
    """Decode the body of `type_in_chat`. Raises BadRequest."""
    return decode_body(_typings, body)
