"""Chats as resources: list, read (also as a tree, also as it was), delete.

Foreign, deleted and unknown look the same (DESIGN §11). What a list is made of stands in `listing.py`; how a chat is
folded up to a place in `server/store/past.py`. The one rule: every answer is of one moment, the position it names.
"""

from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from protocol.codec import encode
from protocol.errors import BadRequest, NotFound
from protocol.exports import tree_of
from protocol.ids import Position, check_chat_id, check_id
from protocol.outbox import deleted
from protocol.snapshot import resume_is_possible, snapshot_of
from protocol.state import ChatState
from server.api.commands import lay_down_internal
from server.api.edge import Edge, edge_of
from server.api.errors import ANSWER_HEADERS, answer
from server.api.listing import (
    LIST_DEFAULT,
    LIST_MAX,
    SEARCH_MAX_CHARACTERS,
    find_chats,
    item_of,
    read_cursor,
    whole_number,
)
from server.api.reading import read_chat_as
from server.store.family import delete_children, delete_family
from server.store.past import NoLongerHeld, state_at
from server.store.port import ChatMeta, shelf_of

__all__ = ["delete_chat", "list_chats", "own_chat", "read_chat"]


async def list_chats(request: Request) -> Response:
    """`GET /v1/chats?limit&cursor&state&q&parent_id`: the caller's chats, newest activity first; those that tools of
    another chat began are listed under it alone. The cursor is opaque."""
    edge = edge_of(request)
    principal = edge.principal(request.scope)
    limit = whole_number(request, "limit", LIST_DEFAULT, 1, LIST_MAX)
    cursor = read_cursor(request)
    state = request.query_params.get("state")
    search = request.query_params.get("q", "")
    if len(search) > SEARCH_MAX_CHARACTERS:
        raise BadRequest(f"q must be at most {SEARCH_MAX_CHARACTERS} characters", path="/q")
    folded = search.casefold()
    parent_id = ""
    if "parent_id" in request.query_params:
        parent_id = check_id(request.query_params["parent_id"], "parent_id")
        await edge.own(parent_id, principal)

    def is_wanted(chat: ChatMeta) -> bool:
        return (state is None or chat.state == state) and folded in str(item_of(chat)["title"]).casefold()

    filters = is_wanted if state is not None or folded else None
    found = await find_chats(edge.store, shelf_of(principal.id, parent_id), limit, cursor, filters)
    return answer(
        200,
        {
            "items": [item_of(chat) for chat in found.chats],
            "has_more": found.next_cursor is not None,
            "next_cursor": found.next_cursor,
        },
    )


async def read_chat(request: Request) -> Response:
    """`GET /v1/chats/{chat_id}?view&at`: the chat as a snapshot or as a tree, now or as it was at a position."""
    edge = edge_of(request)
    view = request.query_params.get("view", "")
    if view not in ("", "path", "tree"):
        raise BadRequest("view must be path or tree", path="/view")
    at = request.query_params.get("at")
    place = None if at is None else _read_place(at)
    meta = await own_chat(edge, request)
    shape = _tree if view == "tree" else _snapshot
    if place is None:
        return _shown(await read_chat_as(edge.store, meta.chat_id, shape))
    state = await read_chat_as(edge.store, meta.chat_id, lambda state: state)
    if place.position > state.position:
        raise NotFound(f"the chat has not come to position {place.position}; it stands at {state.position}")
    if place.epoch is not None and not resume_is_possible(state, place.epoch, place.position):
        raise NotFound("that position is of a history that is no more; read the chat as it is now")
    try:
        then = await state_at(edge.store, meta.chat_id, place.position)
    except NoLongerHeld as gone:
        detail = f"that is no longer held; the earliest position to be shown is {gone.first}"
        return answer(410, {"detail": detail, "code": "gone", "first": gone.first})
    return _shown(shape(then))


def _shown(chat: bytes) -> Response:
    return Response(chat, headers=ANSWER_HEADERS, media_type="application/json")


async def delete_chat(request: Request) -> Response:
    """`DELETE /v1/chats/{chat_id}`, and the chats that its tools began. Nothing brings them back but an import by their
    owner. A chat that waits for this one hears before that nothing will come: should this break off, the next try ends
    what is left, and nobody would tell it then."""
    edge = edge_of(request)
    principal = edge.principal(request.scope)
    chat_id = check_chat_id(request.path_params["chat_id"])
    meta = await edge.store.meta(chat_id)
    if meta is None or meta.owner != principal.id:
        raise NotFound("no such chat")
    if meta.deleted:  # by a request that may have broken off
        await delete_children(edge.store, chat_id, meta.owner)
        raise NotFound("no such chat")
    if meta.parent:
        await lay_down_internal(edge, meta.owner, meta.parent, deleted(chat_id))
    if not await delete_family(edge.store, chat_id, meta.owner):
        raise NotFound("no such chat")
    return answer(200, {"status": "deleted"})


async def own_chat(edge: Edge, request: Request) -> ChatMeta:
    """The meta of the chat that the path names. Raises BadRequest, NotFound, Unauthorized."""
    principal = edge.principal(request.scope)
    return await edge.own(check_chat_id(request.path_params["chat_id"]), principal)


def _snapshot(state: ChatState) -> bytes:
    snapshot = encode(snapshot_of(state))
    place = Position(state.epoch, state.position, state.position)
    head = b'{"chat_id":"%b","position":%d,"id":"%b",' % (state.chat_id.encode(), state.position, str(place).encode())
    return head + snapshot[1:]


def _tree(state: ChatState) -> bytes:
    return encode(
        {
            "chat_id": state.chat_id,
            "position": state.position,
            "id": str(Position(state.epoch, state.position, state.position)),
            "type": "tree",
            "thread": state.thread,
            "runtime": state.runtime,
            "leaf_id": state.path[-1] if state.path else None,
            "messages": tree_of(state),
        }
    )


class _Place(NamedTuple):
    """What `at` names: a position, and the life of the log that it must be of, if the client said."""

    position: int
    epoch: int | None


def _read_place(text: str) -> _Place:
    if text.isascii() and text.isdigit() and len(text) <= 15:
        return _Place(int(text), None)
    place = Position.parse(text)
    if place is None:
        raise BadRequest("at must be a position: a whole number, or the id of an event or snapshot", path="/at")
    return _Place(place.position, place.epoch)
