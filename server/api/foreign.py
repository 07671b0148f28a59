"""What a foreign GUI asks for at start: its chat list and its sidebar, over our list and feed (PROTOCOL §13).

An adapter and nothing else: it renames. Times are ISO 8601 there, and a chat is a trajectory. The rule: the fields are
exactly those that the GUI knows, so what it does not know stays out.
"""

import secrets
from collections.abc import Sequence
from datetime import UTC, datetime

from msgspec import to_builtins
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from protocol.messages import JsonObject
from protocol.snapshot import active_path
from protocol.state import ChatState
from server.api.chats import delete_chat, own_chat
from server.api.edge import edge_of
from server.api.errors import answer
from server.api.feed import sse_block, stream_feed
from server.api.listing import LIST_DEFAULT, LIST_MAX, cursor_of, find_chats, read_cursor, whole_number
from server.api.reading import read_chat_as
from server.relay.feeds import Feed
from server.store.port import ChatMeta, Place

__all__ = ["delete_trajectory", "list_trajectories", "read_trajectory", "sidebar"]

PROTOCOL_VERSION = 2
"""Of the sidebar's envelope, as its GUI counts it."""

SIDEBAR_CHATS = 50
"""In a section; the GUI asks for more by `next_cursor`."""


async def list_trajectories(request: Request) -> Response:
    """`GET /v1/trajectories?limit&cursor`."""
    edge = edge_of(request)
    principal = edge.principal(request.scope)
    limit = whole_number(request, "limit", LIST_DEFAULT, 1, LIST_MAX)
    found = await find_chats(edge.store, principal.id, limit, read_cursor(request))
    return answer(
        200,
        {
            "items": [_meta(chat) for chat in found.chats],
            "next_cursor": found.next_cursor,
            "has_more": found.next_cursor is not None,
            "total_count": await edge.store.count_chats(principal.id),
        },
    )


async def read_trajectory(request: Request) -> Response:
    """`GET /v1/trajectories/{chat_id}`: the thread's parameters and the messages of the active path, in one object."""
    edge = edge_of(request)
    meta = await own_chat(edge, request)
    times = {"created_at": _iso(meta.created_at), "updated_at": _iso(meta.last_active)}

    def shape(state: ChatState) -> Response:
        thread: JsonObject = to_builtins(state.thread)
        return answer(200, {**thread, **times, "messages": active_path(state)})

    return await read_chat_as(edge.store, meta.chat_id, shape)


async def delete_trajectory(request: Request) -> Response:
    """`DELETE /v1/trajectories/{chat_id}`."""
    return await delete_chat(request)


def _meta(chat: ChatMeta) -> JsonObject:
    """META of PROTOCOL §13. We have no tasks and count no lines."""
    return {
        "id": chat.chat_id,
        "title": chat.title or "New Chat",
        "created_at": _iso(chat.created_at),
        "updated_at": _iso(chat.last_active),
        "model": chat.model,
        "mode": chat.mode,
        "message_count": chat.message_count,
        "session_state": chat.state,
        "root_chat_id": None,
        "total_lines_added": 0,
        "total_lines_removed": 0,
        "tasks_total": 0,
        "tasks_done": 0,
        "tasks_failed": 0,
    }


def _iso(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class _SidebarView:
    """Four sections, ready at once; then the section of chats again whenever one of them changes."""

    def __init__(self, feed: Feed) -> None:
        self._feed = feed
        self._subscription_id = ""
        self._seq = 0

    def snapshot(self) -> bytes:
        self._subscription_id = f"sub_{secrets.token_hex(8)}"
        self._seq = 0
        return (
            self._section("workspace", {"workspace_roots": []})
            + self._section("chats", self._chats())
            + self._section("tasks", {"tasks": []})
            + self._section("buddy", {"buddy": None})
        )

    def changes(self, changed: Sequence[ChatMeta], removed: Sequence[str]) -> bytes:
        return self._section("chats", self._chats())

    def _chats(self) -> JsonObject:
        chats = self._feed.chats
        shown = chats[:SIDEBAR_CHATS]
        has_more = self._feed.has_more or len(chats) > len(shown)
        last = Place(shown[-1].last_active, shown[-1].chat_id) if shown and has_more else None
        pagination = {
            "next_cursor": None if last is None else cursor_of(last),
            "has_more": has_more,
            "total_count": self._feed.total_count,
        }
        return {"trajectories": [_meta(chat) for chat in shown], "pagination": pagination}

    def _section(self, name: str, snapshot: JsonObject) -> bytes:
        block = sse_block(
            {
                "protocol_version": PROTOCOL_VERSION,
                "seq": self._seq,
                "subscription_id": self._subscription_id,
                "event": {"type": "section_snapshot", "section": name, "status": "ready", "snapshot": snapshot},
            }
        )
        self._seq += 1
        return block


class _Sidebar:
    """`GET /v1/sidebar/subscribe`; an ASGI application of its own."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await stream_feed(scope, receive, send, _SidebarView)


sidebar = _Sidebar()
