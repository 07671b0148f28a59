"""The endpoints that a foreign GUI calls at its start: its chat list and its sidebar (PROTOCOL §13).

These endpoints show this server's own list and feed with other field names. The format calls a chat a trajectory, and
its times are ISO 8601. The answers have exactly the fields that the GUI expects.
"""

import secrets
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, Literal, TypeAlias

import msgspec
from msgspec import Meta
from msgspec.structs import asdict
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from threadcast.api.answers import LargeAnswer
from threadcast.api.chats import delete_own_chat
from threadcast.api.edge import caller_of, own_chat_of
from threadcast.api.errors import ANSWER_HEADERS, answer
from threadcast.api.feed import sse_block, stream_feed
from threadcast.api.listing import LIST_DEFAULT, LIST_MAX, cursor_of, find_chats, read_cursor, whole_number
from threadcast.api.operation import BAD_ID, NOT_FOUND, UNAVAILABLE, UNREAD, Answer, Operation, Parameter, events
from threadcast.api.reading import read_chat_as
from threadcast.chat.owner_state import OwnerState
from threadcast.fanout.feeds import Feed
from threadcast.store.ports import ChatMeta, ListCursor
from threadcast_protocol.fold.snapshot import active_path
from threadcast_protocol.framing.codec import encode
from threadcast_protocol.wire.http import Status
from threadcast_protocol.wire.messages import JsonObject, Message
from threadcast_protocol.wire.thread import Thread

__all__ = ["delete_trajectory", "list_trajectories", "read_trajectory", "sidebar"]

PROTOCOL_VERSION = 2
"""The version of the sidebar's frames that the GUI expects."""

Section: TypeAlias = Literal["workspace", "chats", "tasks", "buddy"]

SIDEBAR_CHATS = 50
"""The number of chats in the sidebar's section; the GUI requests further chats with `next_cursor`."""


class Trajectory(msgspec.Struct, frozen=True, kw_only=True):
    """A chat in the list of a foreign GUI. Times are ISO 8601. The counts of tasks and lines are always 0."""

    id: str
    title: str
    created_at: str
    updated_at: str
    model: str
    mode: str
    message_count: int
    session_state: str
    root_chat_id: str | None
    total_lines_added: int
    total_lines_removed: int
    tasks_total: int
    tasks_done: int
    tasks_failed: int


class TrajectoryChat(Thread, frozen=True, kw_only=True, omit_defaults=True):
    """A chat as a foreign GUI reads it: its parameters and its active path. `created_at` and `updated_at` are ISO
    8601."""

    created_at: str  # type: ignore[assignment]  # a number everywhere else; that GUI wants a text
    updated_at: str
    messages: list[Message]


class TrajectoryList(msgspec.Struct, frozen=True, kw_only=True):
    """One page of chats. `total_count` is the number of all chats of the caller."""

    items: list[Trajectory]
    next_cursor: str | None
    has_more: bool
    total_count: int


class SidebarEvent(msgspec.Struct, frozen=True, kw_only=True):
    """The whole content of one section; the sections are workspace, chats, tasks and buddy."""

    type: Literal["section_snapshot"]
    section: Section
    status: Literal["ready"]
    snapshot: JsonObject


class SidebarFrame(msgspec.Struct, frozen=True, kw_only=True):
    """One `data:` line of the foreign sidebar; `seq` counts from 0."""

    protocol_version: int
    seq: int
    subscription_id: str
    event: SidebarEvent


@Operation(
    "GET",
    "/v1/trajectories",
    "listTrajectories",
    "List the caller's chats in the format of a foreign GUI.",
    tag="foreign",
    parameters=[
        Parameter("limit", Annotated[int, Meta(ge=1, le=LIST_MAX)], default=LIST_DEFAULT),
        Parameter("cursor", str, "`next_cursor` of the previous page."),
    ],
    answers={200: Answer("One page.", TrajectoryList)},
    errors={400: "`bad_request`: a parameter is out of bounds."} | UNAVAILABLE,
)
async def list_trajectories(request: Request) -> Response:
    """`GET /v1/trajectories?limit&cursor`: lists the caller's chats, newest activity first."""
    edge, principal = caller_of(request)
    limit = whole_number(request, "limit", LIST_DEFAULT, 1, LIST_MAX)
    found = await find_chats(edge.store, principal.id, limit, read_cursor(request))
    return answer(
        200,
        TrajectoryList(
            items=[_meta(chat) for chat in found.chats],
            next_cursor=found.next_cursor,
            has_more=found.next_cursor is not None,
            total_count=await edge.store.count_chats(principal.id),
        ),
    )


@Operation(
    "GET",
    "/v1/trajectories/{chat_id}",
    "readTrajectory",
    "Read a chat in the format of a foreign GUI: its parameters and the messages of its active path.",
    tag="foreign",
    answers={200: Answer("The chat.", TrajectoryChat)},
    errors=BAD_ID | NOT_FOUND | UNREAD | UNAVAILABLE,
)
async def read_trajectory(request: Request) -> Response:
    """`GET /v1/trajectories/{chat_id}`: returns the chat's parameters and the messages of its active path."""
    edge, meta = await own_chat_of(request)
    times = {"created_at": _iso(meta.created_at), "updated_at": _iso(meta.last_active)}

    def shape(state: OwnerState) -> bytes:
        return encode(TrajectoryChat(**asdict(state.thread) | times, messages=active_path(state)))

    async with edge.answers.turn(request) as room:
        chat = await read_chat_as(edge.store, meta.chat_id, shape)
        room.take(len(chat))
    return LargeAnswer(chat, headers=ANSWER_HEADERS, media_type="application/json")


@Operation(
    "DELETE",
    "/v1/trajectories/{chat_id}",
    "deleteTrajectory",
    "Delete a chat with all its content, and the chats that its tools began.",
    tag="foreign",
    answers={200: Answer("Gone.", Status)},
    errors=BAD_ID | NOT_FOUND | UNAVAILABLE,
)
async def delete_trajectory(request: Request) -> Response:
    """`DELETE /v1/trajectories/{chat_id}`: deletes the chat, as `DELETE /v1/chats/{chat_id}` does."""
    return await delete_own_chat(request)


def _meta(chat: ChatMeta) -> Trajectory:
    """Return a chat in the format of the GUI's list (META in PROTOCOL §13)."""
    return Trajectory(
        id=chat.chat_id,
        title=chat.title or "New Chat",
        created_at=_iso(chat.created_at),
        updated_at=_iso(chat.last_active),
        model=chat.model,
        mode=chat.mode,
        message_count=chat.message_count,
        session_state=chat.state,
        root_chat_id=None,
        total_lines_added=0,
        total_lines_removed=0,
        tasks_total=0,
        tasks_done=0,
        tasks_failed=0,
    )


def _iso(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class _SidebarView:
    """Encodes a feed as the sidebar's four sections. Whenever a chat changes, the section of chats is sent again."""

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
        last = ListCursor(shown[-1].last_active, shown[-1].chat_id) if shown and has_more else None
        pagination = {
            "next_cursor": None if last is None else cursor_of(last),
            "has_more": has_more,
            "total_count": self._feed.total_count,
        }
        return {"trajectories": [_meta(chat) for chat in shown], "pagination": pagination}

    def _section(self, name: Section, snapshot: JsonObject) -> bytes:
        block = sse_block(
            SidebarFrame(
                protocol_version=PROTOCOL_VERSION,
                seq=self._seq,
                subscription_id=self._subscription_id,
                event=SidebarEvent(type="section_snapshot", section=name, status="ready", snapshot=snapshot),
            )
        )
        self._seq += 1
        return block


@Operation(
    "GET",
    "/v1/sidebar/subscribe",
    "sidebar",
    "Stream the list of the caller's chats in the format of a foreign GUI's sidebar.",
    tag="foreign",
    answers={200: events(SidebarFrame)},
    errors=UNAVAILABLE,
    is_asgi=True,
)
async def sidebar(scope: Scope, receive: Receive, send: Send) -> None:
    """`GET /v1/sidebar/subscribe`: an ASGI application."""
    await stream_feed(scope, receive, send, _SidebarView)
