"""The endpoints that list, read and delete chats. A chat can be read as a tree, and as it was at an earlier position.

A chat of another principal, a deleted chat and an unknown chat get the same answer (DESIGN §11). `listing.py` makes the
lists, and `store/history.py` folds a chat up to a position. Each answer shows the chat at one position, which the
answer names.
"""

from contextlib import suppress
from typing import Annotated, Any, Literal, Protocol

import msgspec
from msgspec import Meta
from msgspec.structs import asdict
from starlette.requests import Request
from starlette.responses import Response

from threadcast.api.answers import AnswerRoom, LargeAnswer
from threadcast.api.edge import caller_and_chat_of, caller_of, own_chat_of
from threadcast.api.errors import ANSWER_HEADERS, answer
from threadcast.api.listing import (
    LIST_DEFAULT,
    LIST_MAX,
    SEARCH_MAX_CHARACTERS,
    find_chats,
    item_of,
    read_cursor,
    whole_number,
)
from threadcast.api.operation import BAD_ID, NOT_FOUND, UNAVAILABLE, UNREAD, Answer, Operation, Parameter
from threadcast.api.posting import lay_down_internal
from threadcast.api.reading import read_chat_as
from threadcast.chat.exports import tree_of
from threadcast.chat.internal_commands import BeginSubchat, decode_inbox_body
from threadcast.chat.outbound import deleted
from threadcast.chat.owner_state import OwnerState, resume_is_possible
from threadcast.store.families import delete_children
from threadcast.store.history import NoLongerHeld, state_at
from threadcast.store.ports import ChatMeta, Inbox, Index, list_owner_of
from threadcast_protocol.fold.snapshot import snapshot_of
from threadcast_protocol.framing.codec import encode
from threadcast_protocol.wire.errors import BadRequest, NotFound
from threadcast_protocol.wire.http import ChatList, ChatSnapshot, ChatTree, Failure, Status
from threadcast_protocol.wire.ids import Position, check_id

__all__ = ["delete_chat", "delete_own_chat", "list_chats", "read_chat"]


@Operation(
    "GET",
    "/v1/chats",
    "listChats",
    "List the caller's chats, newest `last_active` first.",
    tag="chats",
    parameters=[
        Parameter("limit", Annotated[int, Meta(ge=1, le=LIST_MAX)], default=LIST_DEFAULT),
        Parameter("cursor", str, "`next_cursor` of the page before."),
        Parameter("state", str, "Only chats in this state."),
        Parameter(
            "q",
            Annotated[str, Meta(max_length=SEARCH_MAX_CHARACTERS)],
            "Only chats whose title contains this text, ignoring case.",
        ),
        Parameter("parent_id", str, "List the chats that tools of this chat began, instead."),
    ],
    answers={200: Answer("One page.", ChatList)},
    errors={
        400: "`bad_request`: a parameter is out of bounds.",
        404: "`not_found`: the caller has no chat `parent_id`.",
    }
    | UNAVAILABLE,
)
async def list_chats(request: Request) -> Response:
    """`GET /v1/chats?limit&cursor&state&q&parent_id`: lists the caller's chats, newest activity first. A chat that a
    tool of another chat began is listed only if `parent_id` is the id of that other chat. The cursor is opaque."""
    edge, principal = caller_of(request)
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
        return (state is None or chat.state == state) and folded in item_of(chat).title.casefold()

    filters = is_wanted if state is not None or folded else None
    found = await find_chats(edge.store, list_owner_of(principal.id, parent_id), limit, cursor, filters)
    items = [item_of(chat) for chat in found.chats]
    return answer(200, ChatList(items, found.next_cursor is not None, found.next_cursor))


@Operation(
    "GET",
    "/v1/chats/{chat_id:chat}",
    "readChat",
    "Read a chat as it is or was, as the snapshot that a subscriber gets, or as a tree.",
    tag="chats",
    parameters=[
        Parameter("view", Literal["path", "tree"], "`tree` returns every message, not only the active path."),
        Parameter("at", str, "A position, or the id of an event; returns the chat as it was then."),
    ],
    answers={200: Answer("The chat.", ChatSnapshot | ChatTree)},
    errors={
        400: "`bad_request`: a malformed or reserved id, or a wrong parameter.",
        404: "`not_found`: no such chat, or a position that the chat has not reached.",
        410: "`gone`: the log no longer holds that position; `first` is the earliest position that it holds.",
    }
    | UNREAD
    | UNAVAILABLE,
)
async def read_chat(request: Request) -> Response:
    """`GET /v1/chats/{chat_id}?view&at`: returns the chat as a snapshot or as a tree, in its present state or at an
    earlier position."""
    view = request.query_params.get("view", "")
    if view not in ("", "path", "tree"):
        raise BadRequest("view must be path or tree", path="/view")
    at = request.query_params.get("at")
    position, epoch = (None, None) if at is None else _read_at(at)
    edge, meta = await own_chat_of(request)
    shape = _tree if view == "tree" else _snapshot
    async with edge.answers.turn(request) as room:
        if position is None:
            return _shown(await read_chat_as(edge.store, meta.chat_id, shape), room)
        state = await read_chat_as(edge.store, meta.chat_id, lambda state: state)
        if position > state.position:
            raise NotFound(f"the chat has not reached position {position}; its position is {state.position}")
        if epoch is not None and not resume_is_possible(state, epoch, position):
            raise NotFound(
                "that position belongs to an earlier log of this chat, which no longer exists; read the chat as it is "
                "now"
            )
        try:
            then = await state_at(edge.store, meta.chat_id, position)
        except NoLongerHeld as gone:
            detail = f"the log no longer holds that position; the earliest that it holds is {gone.first}"
            return answer(410, Failure(detail, "gone", first=gone.first))
        return _shown(shape(then), room)


def _shown(chat: bytes, room: AnswerRoom) -> Response:
    room.take(len(chat))
    return LargeAnswer(chat, headers=ANSWER_HEADERS, media_type="application/json")


@Operation(
    "DELETE",
    "/v1/chats/{chat_id:chat}",
    "deleteChat",
    "Delete a chat with all its content, and the chats that its tools began.",
    tag="chats",
    answers={200: Answer("Gone.", Status)},
    errors=BAD_ID | NOT_FOUND | UNAVAILABLE,
)
async def delete_chat(request: Request) -> Response:
    """`DELETE /v1/chats/{chat_id}`: deletes the chat and the chats that its tools began. Deleted chats are restored
    only by an import of their owner. A parent chat that waits for this chat is told before the deletion begins: if the
    deletion is interrupted, the next attempt deletes the rest and does not tell the parent."""
    return await delete_own_chat(request)


async def delete_own_chat(request: Request) -> Response:
    """Delete the chat that the request's path names, and return the answer."""
    edge, principal, chat_id = caller_and_chat_of(request)
    meta = await edge.store.meta(chat_id)
    if meta is None or meta.owner != principal.id:
        raise NotFound("no such chat")
    if meta.deleted:  # deleted by a request that may have been interrupted
        await delete_children(edge.store, chat_id, meta.owner)
        edge.hub.deleted()
        raise NotFound("no such chat")
    if parent := meta.parent or await parent_of_new(edge.store, chat_id):
        await lay_down_internal(edge, meta.owner, parent, deleted(chat_id))
    if not await edge.delete(chat_id, meta.owner):
        raise NotFound("no such chat")
    return answer(200, Status("deleted"))


class NewChats(Inbox, Index, Protocol):
    """The parts of the store that have data of a chat before its first append."""


async def parent_of_new(store: NewChats, chat_id: str) -> str:
    """Return the id of the chat whose tool began this chat; '' if no tool began it. The command that begins a sub-chat
    is in the sub-chat's inbox until the first append, which stores the parent's id in the chat's fields."""
    for entry in await store.read_inbox(chat_id, 1):
        with suppress(BadRequest, msgspec.DecodeError):
            command = decode_inbox_body(entry.body)
            if isinstance(command, BeginSubchat):
                return command.parent.chat_id
    meta = await store.meta(chat_id)  # the command may have been carried out since the first read
    return meta.parent if meta is not None else ""


def _snapshot(state: OwnerState) -> bytes:
    return encode(ChatSnapshot(**_position_fields(state), **asdict(snapshot_of(state))))


def _tree(state: OwnerState) -> bytes:
    return encode(
        ChatTree(
            **_position_fields(state),
            thread=state.thread,
            runtime=state.runtime,
            leaf_id=state.path[-1] if state.path else None,
            messages=tree_of(state),
        )
    )


def _position_fields(state: OwnerState) -> dict[str, Any]:  # Any: the values are an id, a number and a position
    stream_position = Position(state.epoch, state.position, state.position)
    return {"chat_id": state.chat_id, "position": state.position, "id": str(stream_position)}


def _read_at(text: str) -> tuple[int, int | None]:
    """Return the position that `at` names, and the epoch that its log must have, if `at` is the id of an event."""
    if text.isascii() and text.isdigit() and len(text) <= 15:
        return int(text), None
    stream_position = Position.parse(text)
    if stream_position is None:
        raise BadRequest("at must be a position: a whole number, or the id of an event or snapshot", path="/at")
    return stream_position.position, stream_position.epoch
