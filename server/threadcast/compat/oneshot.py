"""The four one-shot endpoints: each request posts one message, and its answer is the message's run (PROTOCOL §14).

An endpoint reads its body, follows the chat, posts an ordinary `user_message`, and passes the run's events to a
projection, whose frames it sends. The chat is the same as if the command had been posted to
`/v1/chats/{chat_id}/commands`. All refusals are JSON answers, sent before the first byte of the stream.
"""

import secrets
import time
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import TypeAlias

import anyio
import structlog
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from threadcast.api.blobs import THREAD_MIN_BYTES
from threadcast.api.diagnostics import diagnostics_within, may_diagnose
from threadcast.api.edge import Edge, caller_of, read_json, release_body
from threadcast.api.errors import STATUS_OF_CODE, answer
from threadcast.api.opening import SSE_HEADERS, goodbye
from threadcast.api.operation import LIMITED, NOT_FOUND, UNAVAILABLE, Answer, Operation, Parameter
from threadcast.api.posting import cancel_of, lay_down, lay_down_internal
from threadcast.api.run_watch import RunWatch, watch_chat
from threadcast.base.deadlines import Deadline
from threadcast.base.large_reads import in_large_read
from threadcast.compat.base import AWAITS_DECISION, OutFrame, RunSlice
from threadcast.compat.oneshot_bodies import (
    AgentChatRequest,
    Ask,
    CompletionsRequest,
    Fresh,
    OnDisconnect,
    PageChatRequest,
    TextChatRequest,
    check_scope,
    read_agent_chat,
    read_completions,
    read_page_chat,
    read_text_chat,
)
from threadcast.http.extensions import abort_of
from threadcast.profiles.endpoint_rules import NO_RULE
from threadcast.profiles.profile import Profiles
from threadcast.store.ports import ChatMeta
from threadcast_protocol.framing.sse import encode_event, heartbeat
from threadcast_protocol.wire.commands import Abort
from threadcast_protocol.wire.errors import BadRequest, Conflict, Refused, ThreadcastError
from threadcast_protocol.wire.principal import Principal

__all__ = ["agent_chat", "chat_completions", "page_chat", "text_chat"]

_log = structlog.get_logger()

TICK_SECONDS = 1.0
"""Seconds between checks, on a silent stream, whether a heartbeat is due or the server is stopping."""

LEAVE_SECONDS = 5.0
"""Seconds that stopping an abandoned run may take. Once the abort is posted, it takes effect in any case."""

MODEL_FAILED_STATUS = 502
"""The HTTP status of a JSON answer whose run failed: the model behind this server gave no valid answer."""

TRACE_WAIT_SECONDS = 1.0
"""Seconds that the end of an answer may wait for the last record of its trace. After that, the trace is sent as it
is."""

_Reader: TypeAlias = Callable[[bytes, Fresh, Profiles], Ask]


def _one_shot(path: str, operation_id: str, summary: str, body: type) -> Operation:
    """Return the operation of a one-shot endpoint. The endpoints differ only in their bodies and in the frames of their
    streams."""
    return Operation(
        "POST",
        path,
        operation_id,
        summary,
        tag="one-shot",
        body=body,
        parameters=[
            Parameter(
                "on_disconnect",
                OnDisconnect,
                "Whether the run is aborted when the client disconnects; also a key of the body.",
                default="abort",
            ),
            Parameter("mode", str, "A profile, if the operator allows callers to choose; also a key of the body."),
        ],
        answers={
            200: Answer(
                "Frames (PROTOCOL §14), until the run has ended; or one object for callers that prefer "
                "`application/json`.",
                dict,
                "text/event-stream",
            ),
            502: Answer(
                "Only in JSON answers: the run failed. The error has the form of the endpoint's own wire, and the body "
                "also has the fields of a 200 answer.",
                dict,
            ),
        },
        errors={
            400: "`bad_request` or `invalid_content`: a bad body or an unknown scope; nothing was stored.",
            409: "`conflict`: the chat waits for an approval, or, in JSON answers, this run does. `id_taken`: choose "
            "another chat id.",
            413: "`too_large`.",
        }
        | NOT_FOUND
        | LIMITED
        | UNAVAILABLE,
    )


@_one_shot("/chat", "textChat", "Send a message and stream its answer as text frames.", TextChatRequest)
async def text_chat(request: Request) -> Response:
    """`POST /chat`."""
    return await _answer(request, "/chat", read_text_chat)


@_one_shot("/v1/agent/chat", "agentChat", "Send a message and stream its run as named JSON frames.", AgentChatRequest)
async def agent_chat(request: Request) -> Response:
    """`POST /v1/agent/chat`."""
    return await _answer(request, "/v1/agent/chat", read_agent_chat)


@_one_shot(
    "/api/chat/stream",
    "pageChat",
    "Send a message and stream its run as typed frames; the last one holds the whole answer.",
    PageChatRequest,
)
async def page_chat(request: Request) -> Response:
    """`POST /api/chat/stream`."""
    return await _answer(request, "/api/chat/stream", read_page_chat)


@_one_shot(
    "/v1/chat/completions",
    "chatCompletions",
    "Send a message to a chat of this server in the format of OpenAI's Chat Completions.",
    CompletionsRequest,
)
async def chat_completions(request: Request) -> Response:
    """`POST /v1/chat/completions`."""
    return await _answer(request, "/v1/chat/completions", read_completions)


async def _answer(request: Request, path: str, read: _Reader) -> Response:
    edge, principal = caller_of(request)
    body = await read_json(request, edge.limits.body_max_bytes)
    fresh = Fresh(f"chat-{secrets.token_hex(16)}", f"oneshot-{secrets.token_hex(12)}", int(time.time()))
    if len(body) > THREAD_MIN_BYTES:  # decoding 16 MB takes tens of milliseconds
        ask = await in_large_read(partial(read, body, fresh, edge.profiles))
    else:
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
    release_body(request)
    new_mode = profile.name if meta is None and (wanted or rule.profile) else ""
    if meta is not None and wanted:
        ask = ask.in_mode(wanted)
    ask.projection.retry_text = profile.reply_guard.retry_text
    prefers_json = _prefers_json(request.headers.get("accept", ""))
    wants_json = prefers_json if ask.wants_stream is None else not ask.wants_stream
    return _OneShot(edge, principal, ask, new_mode, wants_json=wants_json, detaches=wish == "detach")


async def _chat_of(edge: Edge, ask: Ask, principal: Principal) -> ChatMeta | None:
    """Return the chat that the caller names; None for a chat that this request creates. Raises IdTaken if the request
    would create a chat of another principal's id, and NotFound if the caller has deleted the chat, or has no such chat
    and this endpoint does not create it."""
    if ask.is_new:
        return None
    if ask.makes_chat:
        return await edge.own_or_new(ask.chat_id, principal)
    return await edge.own(ask.chat_id, principal)


def _prefers_json(accept: str) -> bool:
    """Return whether the client prefers JSON (NET-9). A client that accepts both types gets the stream."""
    return "application/json" in accept and "text/event-stream" not in accept


class _OneShot(Response):
    """An answer that lasts as long as its run. If the client disconnects, the run is aborted, or its message is removed
    from the queue if the run has not begun. With `detaches`, the run goes on."""

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
                    self._edge.forwarded(scope),
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
        """Log one line about the answer."""
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
        """Wait until the client disconnects, then cancel the answer."""
        await goodbye(receive)
        self._is_left = True
        telling.cancel()

    async def _tell(self, scope: Scope, send: Send, watch: RunWatch) -> None:
        projection = self._ask.projection
        await send({"type": "http.response.start", "status": 200, "headers": SSE_HEADERS})
        is_first = True
        async for frames in self._frames(watch):
            blocks: list[bytes] = []
            for index, frame in enumerate(frames):
                is_last = projection.is_done and index == len(frames) - 1
                # SES-1: the first and the last frame have the chat's id as their SSE id, since some formats have no
                # field for it
                blocks.append(encode_event(frame.event, frame.data, self._ask.chat_id if is_first or is_last else None))
                is_first = False
            if not blocks and time.monotonic() - self._written_at >= self._edge.limits.heartbeat_seconds:
                blocks.append(heartbeat(int(time.time())))
            if blocks and not await self._write(scope, send, b"".join(blocks)):
                return
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _write(self, scope: Scope, send: Send, data: bytes) -> bool:
        """Send bytes. Returns False if the client accepted no frame for too long; then its connection is dropped, as if
        the client had disconnected."""
        try:
            async with Deadline(self._edge.limits.subscriber_stall_seconds):
                await send({"type": "http.response.body", "body": data, "more_body": True})
        except TimeoutError:
            self._is_left = True
            abort_of(scope)()
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
        body |= {"detail": message, "code": code}  # as in every error of this server (PROTOCOL §1)
        # The message is in the chat already: a client that repeats the request automatically would send it twice.
        await answer(status, body, {"x-should-retry": "false"})(scope, receive, send)

    async def _frames(self, watch: RunWatch) -> AsyncIterator[list[OutFrame]]:
        """Yield the frames of each entry of the log, and [] after each second of silence, until the projection is
        done."""
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
                frames += projection.fail("unavailable", "the server is stopping; the run goes on, read the chat later")
            yield frames

    async def _diagnose(self) -> None:
        """Fetch the trace of the ended run, if the format has a field for it and the caller may see it."""
        projection, run_id = self._ask.projection, self._slice.run_id
        is_wanted = projection.shows_diagnostics and self._edge.limits.trace_hours > 0 and may_diagnose(self._principal)
        if is_wanted and run_id is not None:
            projection.diagnostics = await diagnostics_within(
                self._edge, self._principal, self._ask.chat_id, run_id, TRACE_WAIT_SECONDS
            )

    async def _stop(self, watch: RunWatch) -> None:
        """Remove the request's message from the queue, or abort its run if it has begun. A run that has ended stays as
        it is."""
        own, chat_id = self._slice, self._ask.chat_id
        with anyio.CancelScope(shield=True), anyio.move_on_after(LEAVE_SECONDS):
            try:
                if own.run_id is None and not own.is_over:
                    cancel = cancel_of(self._ask.command.client_request_id)
                    await lay_down_internal(self._edge, self._principal.id, chat_id, cancel)
                    while own.run_id is None and not own.is_over:
                        for event in await watch.next(TICK_SECONDS):
                            own.take(event)
                if own.run_id is not None and not own.is_over:
                    abort = Abort(client_request_id=f"oneshot-{secrets.token_hex(12)}", run_id=own.run_id)
                    await lay_down(self._edge, self._principal, chat_id, abort)
            except ThreadcastError as lost:
                _log.warning("oneshot.not_stopped", chat_id=chat_id, run_id=own.run_id, reason=lost.code)
