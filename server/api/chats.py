"""Chats as resources: list, read, delete. Foreign and unknown look the same (DESIGN §11)."""

import re
import secrets

from starlette.requests import Request
from starlette.responses import Response

from protocol.codec import encode
from protocol.errors import BadRequest, NotFound
from protocol.ids import check_chat_id
from protocol.snapshot import snapshot_of
from server.api.edge import Edge, edge_of
from server.api.errors import answer
from server.store.load import fold_loaded
from server.store.port import ChatMeta

__all__ = ["delete_chat", "list_chats", "read_chat"]

LIST_DEFAULT, LIST_MAX = 50, 200


async def list_chats(request: Request) -> Response:
    """`GET /v1/chats?limit&cursor&state`: the caller's chats, newest activity first. The cursor is opaque."""
    edge = edge_of(request)
    principal = edge.principal(request.scope)
    limit = _number(request, "limit", LIST_DEFAULT, 1, LIST_MAX)
    cursor = _number(request, "cursor", 0, 0, 2**53)
    found = await edge.store.list_chats(principal.id, limit + 1, cursor or None)
    state = request.query_params.get("state")
    page = [chat for chat in found[:limit] if state is None or chat.state == state]
    has_more = len(found) > limit
    return answer(
        200,
        {
            "items": [_item(chat) for chat in page],
            "has_more": has_more,
            "next_cursor": str(found[limit - 1].last_active) if has_more else None,
        },
    )


async def read_chat(request: Request) -> Response:
    """`GET /v1/chats/{chat_id}`: the chat as a snapshot, with the position it stands at."""
    edge = edge_of(request)
    meta = await _own(edge, request)
    state = fold_loaded(meta.chat_id, await edge.store.load(meta.chat_id), with_facts=False)
    snapshot = encode(snapshot_of(state))
    place = b'{"chat_id":"%b","position":%d,"id":"%d-%d-%d",' % (
        meta.chat_id.encode(),
        state.position,
        state.epoch,
        state.position,
        state.position,
    )
    return Response(place + snapshot[1:], media_type="application/json")


async def delete_chat(request: Request) -> Response:
    """`DELETE /v1/chats/{chat_id}`. Nothing brings it back but an import by its owner."""
    edge = edge_of(request)
    meta = await _own(edge, request)
    if not await edge.store.delete(meta.chat_id, meta.owner, secrets.token_hex(8)):
        raise NotFound("no such chat")
    return answer(200, {"status": "deleted"})


async def _own(edge: Edge, request: Request) -> ChatMeta:
    principal = edge.principal(request.scope)
    return await edge.own(check_chat_id(request.path_params["chat_id"]), principal)


def _item(chat: ChatMeta) -> dict[str, object]:
    return {
        "id": chat.chat_id,
        "title": chat.title or "New Chat",
        "state": chat.state,
        "model": chat.model,
        "mode": chat.mode,
        "message_count": chat.message_count,
        "queue_size": chat.queue,
        "created_at": chat.created_at,
        "last_active": chat.last_active,
    }


def _number(request: Request, name: str, default: int, least: int, most: int) -> int:
    text = request.query_params.get(name)
    if text is None or text == "":
        return default
    if not re.fullmatch("[0-9]{1,16}", text) or not least <= int(text) <= most:
        raise BadRequest(f"{name} must be a whole number from {least} to {most}", path=f"/{name}")
    return int(text)
