"""The four one-shot endpoints: one request, one `user_message`, its run in a foreign wire's frames (PROTOCOL §14).

Each reads its body, follows the chat, posts an ordinary command, and feeds the run's events to a pure projection until
that is done. It runs no loop of its own and keeps nothing: the chat is as if the command had come natively. The one
rule: everything that can be refused is refused as JSON before the first byte of the stream.
"""

import secrets
import time
import uuid
from collections.abc import AsyncIterator, Callable
from typing import TypeAlias

import anyio
import structlog
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from protocol.commands import Abort
from protocol.errors import BadRequest, Conflict, Refused, ThreadcastError
from protocol.principal import Principal
from protocol.sse import encode_event, heartbeat
from server.agent.place.profile import Profiles
from server.api.commands import lay_down, take_back
from server.api.diagnostics import diagnostics_within, may_diagnose
from server.api.edge import Edge, edge_of, read_body
from server.api.endpoints import NO_RULE
from server.api.errors import STATUS_OF_CODE, answer
from server.api.oneshot_bodies import (
    Ask,
    Fresh,
    check_scope,
    read_agent_chat,
    read_completions,
    read_page_chat,
    read_text_chat,
)
from server.api.opening import ABORT, SSE_HEADERS
from server.api.run_watch import RunWatch, watch_chat
from server.deadlines import Deadline
from server.projections.base import AWAITS_DECISION, OutFrame, RunSlice
from server.store.port import ChatMeta

__all__ = ["agent_chat", "chat_completions", "page_chat", "text_chat"]

_log = structlog.get_logger()

TICK_SECONDS = 1.0
"""How soon a silent stream notices that it must say something: a heartbeat, or that the server is going down."""

LEAVE_SECONDS = 5.0
"""What stopping an abandoned run may take of us; the abort itself is durable once it is posted."""

MODEL_FAILED_STATUS = 502
"""Of a JSON answer whose run failed for a reason of its own: the model behind us gave no good answer."""

TRACE_WAIT_SECONDS = 1.0
"""How long the end of an answer may wait for the last record of its trace; a caller sees no more than what is there."""

_Reader: TypeAlias = Callable[[bytes, Fresh, Profiles], Ask]


async def text_chat(request: Request) -> Response:
    """`POST /chat`."""
    return await _answer(request, "/chat", read_text_chat)


async def agent_chat(request: Request) -> Response:
    """`POST /v1/agent/chat`."""
    return await _answer(request, "/v1/agent/chat", read_agent_chat)


async def page_chat(request: Request) -> Response:
    """`POST /api/chat/stream`."""
    return await _answer(request, "/api/chat/stream", read_page_chat)


async def chat_completions(request: Request) -> Response:
    """`POST /v1/chat/completions`."""
    return await _answer(request, "/v1/chat/completions", read_completions)


async def _answer(request: Request, path: str, read: _Reader) -> Response:
    edge = edge_of(request)
    principal = edge.principal(request.scope)
    body = await read_body(request, edge.body_max_bytes)
    fresh = Fresh(f"chat-{uuid.uuid4().hex}", f"oneshot-{secrets.token_hex(12)}", int(time.time()))
    ask = read(body, fresh, edge.profiles)
    wish = request.query_params.get("on_disconnect", ask.on_disconnect or "abort")
    if wish not in ("abort", "detach"):
        raise BadRequest("on_disconnect must be abort or detach", path="/on_disconnect")
    rule = edge.endpoints.get(path, NO_RULE)
    wanted = rule.wanted(request.query_params.get("mode") or ask.mode, edge.profiles)
    meta = await _chat_of(edge, ask, principal)
    if meta is not None and meta.state == "paused":
        raise Conflict(AWAITS_DECISION)
    profile = edge.profiles.named(wanted or (rule.profile if meta is None else meta.mode))
    check_scope(ask, profile)
    new_mode = profile.name if meta is None and (wanted or rule.profile) else ""
    if meta is not None and wanted:
        ask = ask.in_mode(wanted)
    ask.projection.retry_text = profile.reply_guard.retry_text if profile.reply_guard is not None else ""
    prefers_json = _prefers_json(request.headers.get("accept", ""))
    wants_json = prefers_json if ask.wants_stream is None else not ask.wants_stream
    return _OneShot(edge, principal, ask, new_mode, wants_json=wants_json, detaches=wish == "detach")


async def _chat_of(edge: Edge, ask: Ask, principal: Principal) -> ChatMeta | None:
    """Return the chat that the caller names; None for a chat that this request creates. Raises NotFound: the chat is
    not the caller's, or it does not exist and this endpoint does not create it."""
    if ask.is_new:
        return None
    if ask.makes_chat:
        return await edge.own_or_new(ask.chat_id, principal)
    return await edge.own(ask.chat_id, principal)


def _prefers_json(accept: str) -> bool:
    """NET-9. A client that takes both gets the stream."""
    return "application/json" in accept and "text/event-stream" not in accept


class _OneShot(Response):
    """An answer that lives as long as its run. Until the run has begun, what leaves with its caller is the message."""

    def __init__(
        self, edge: Edge, principal: Principal, ask: Ask, new_mode: str, *, wants_json: bool, detaches: bool
    ) -> None:
        super().__init__()
        self._new_mode = new_mode
        self._edge = edge
        self._principal = principal
        self._ask = ask
        self._wants_json = wants_json
        self._detaches = detaches
        self._slice = RunSlice(ask.command.client_request_id)
        self._is_left = False
        self._begun_at = self._written_at = time.monotonic()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with watch_chat(self._edge.store, self._ask.chat_id) as watch:
            try:
                await lay_down(
                    self._edge,
                    self._principal,
                    self._ask.chat_id,
                    self._ask.command,
                    Headers(scope=scope).get("authorization"),
                    new_mode=self._new_mode,
                )
            except Refused as refusal:
                raise self._ask.in_body(refusal) from None
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._listen, receive, tasks.cancel_scope)
                if self._wants_json:
                    await self._tell_once(scope, receive, send, watch)
                else:
                    await self._tell(scope, send, watch)
                tasks.cancel_scope.cancel()
            if self._is_left and not self._detaches and not self._ask.projection.is_done:
                await self._stop(watch)
            self._say_ended()

    def _say_ended(self) -> None:
        """The answer's one line."""
        failure = self._ask.projection.failure
        _log.info(
            "oneshot.ended",
            chat_id=self._ask.chat_id,
            run_id=self._slice.run_id,
            wire=type(self._ask.projection).__name__,
            is_left=self._is_left and not self._ask.projection.is_done,
            code=failure.code if failure else None,
            duration_ms=int((time.monotonic() - self._begun_at) * 1000),
        )

    async def _listen(self, receive: Receive, telling: anyio.CancelScope) -> None:
        """The caller's goodbye ends the telling, whatever it waits for."""
        while (await receive())["type"] != "http.disconnect":
            pass
        self._is_left = True
        telling.cancel()

    async def _tell(self, scope: Scope, send: Send, watch: RunWatch) -> None:
        projection = self._ask.projection
        await send({"type": "http.response.start", "status": 200, "headers": SSE_HEADERS})
        is_first = True
        async for frames in self._frames(watch):
            blocks: list[bytes] = []
            for place, frame in enumerate(frames):
                is_last = projection.is_done and place == len(frames) - 1
                # SES-1: the chat's id with the first and the last frame, also on wires whose frames have no room for it
                blocks.append(encode_event(frame.event, frame.data, self._ask.chat_id if is_first or is_last else None))
                is_first = False
            if not blocks and time.monotonic() - self._written_at >= self._edge.hub.heartbeat_seconds:
                blocks.append(heartbeat(int(time.time())))
            if blocks and not await self._write(scope, send, b"".join(blocks)):
                return
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _write(self, scope: Scope, send: Send, data: bytes) -> bool:
        """False when the caller took no byte for too long: its connection is dropped, as if it had left."""
        try:
            async with Deadline(self._edge.stall_seconds):
                await send({"type": "http.response.body", "body": data, "more_body": True})
        except TimeoutError:
            self._is_left = True
            scope.get("extensions", {}).get(ABORT, _cannot_abort)()
            return False
        self._written_at = time.monotonic()
        return True

    async def _tell_once(self, scope: Scope, receive: Receive, send: Send, watch: RunWatch) -> None:
        projection = self._ask.projection
        async for _ in self._frames(watch):
            pass
        body = projection.body()
        if projection.failure is None:
            await answer(200, body)(scope, receive, send)
            return
        code, message = projection.failure
        status = STATUS_OF_CODE.get(code, MODEL_FAILED_STATUS)
        body |= {"detail": message, "code": code}  # as every error of this server (PROTOCOL §1)
        # The message stands in the chat: a client that repeats the request by itself would say it twice.
        await answer(status, body, {"x-should-retry": "false"})(scope, receive, send)

    async def _frames(self, watch: RunWatch) -> AsyncIterator[list[OutFrame]]:
        """The frames of each entry of the log, [] for a second of silence, until the projection is done."""
        projection = self._ask.projection
        yield projection.begin()
        while not projection.is_done:
            try:
                events = await watch.next(TICK_SECONDS)
            except ThreadcastError as lost:
                yield projection.fail(lost.code, lost.message)
                return
            frames: list[OutFrame] = []
            for event in events:
                if self._slice.take(event):
                    if self._slice.has_ended:
                        await self._diagnose()
                    frames += projection.feed(event)
            if self._slice.refusal is not None:
                frames += projection.fail(*self._slice.refusal)
            elif self._slice.run_id is None and self._slice.is_behind_pause:
                if not self._detaches:
                    await self._stop(watch)
                frames += projection.fail("conflict", AWAITS_DECISION)
            elif self._edge.hub.is_closing:
                frames += projection.fail(
                    "unavailable", "the server is going down; the run goes on, read the chat later"
                )
            yield frames

    async def _diagnose(self) -> None:
        """Fetch the trace of the run that has ended, where the wire has a place for it and the caller may see it."""
        projection, run_id = self._ask.projection, self._slice.run_id
        is_wanted = projection.shows_diagnostics and self._edge.keeps_traces and may_diagnose(self._principal)
        if is_wanted and run_id is not None:
            projection.diagnostics = await diagnostics_within(
                self._edge, self._principal, self._ask.chat_id, run_id, TRACE_WAIT_SECONDS
            )

    async def _stop(self, watch: RunWatch) -> None:
        """End what this request began: its message while that waits, else its run. What ended already stays."""
        own, chat_id = self._slice, self._ask.chat_id
        with anyio.CancelScope(shield=True), anyio.move_on_after(LEAVE_SECONDS):
            try:
                if own.run_id is None and not own.is_over:
                    await take_back(self._edge, self._principal, chat_id, self._ask.command.client_request_id)
                    while own.run_id is None and not own.is_over:
                        for event in await watch.next(TICK_SECONDS):
                            own.take(event)
                if own.run_id is not None and not own.is_over:
                    abort = Abort(client_request_id=f"oneshot-{secrets.token_hex(12)}", run_id=own.run_id)
                    await lay_down(self._edge, self._principal, chat_id, abort)
            except ThreadcastError as lost:
                _log.warning("oneshot.not_stopped", chat_id=chat_id, run_id=own.run_id, reason=lost.code)


def _cannot_abort() -> None:
    """Under another server than ours the connection is left to it."""
