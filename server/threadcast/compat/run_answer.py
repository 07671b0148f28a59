"""The answer that shows one run of a chat in another server's format: a stream of frames, or one JSON body.

An endpoint passes a projection and, if the run has not begun, a function that posts the command. The answer follows the
chat before it posts, passes the run's events to the projection and sends its frames. The endpoint decides whether the
run is aborted or continues when the client disconnects.
"""

import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import anyio
import structlog
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from threadcast.api.diagnostics import diagnostics_within, may_diagnose
from threadcast.api.edge import Edge
from threadcast.api.errors import STATUS_OF_CODE, answer
from threadcast.api.opening import SSE_HEADERS, goodbye
from threadcast.api.posting import cancel_of, lay_down, lay_down_internal
from threadcast.api.run_watch import RunWatch, join_chat, watch_chat
from threadcast.base.deadlines import Deadline
from threadcast.compat.base import AWAITS_DECISION, OutFrame, Projection, RunSlice
from threadcast.http.extensions import abort_of
from threadcast_protocol.fold.state import ChatState
from threadcast_protocol.framing.sse import encode_event, heartbeat
from threadcast_protocol.wire.commands import Abort
from threadcast_protocol.wire.errors import ThreadcastError
from threadcast_protocol.wire.principal import Principal

__all__ = ["Post", "RunAnswer"]

_log = structlog.get_logger()

Post = Callable[[str | None], Awaitable[None]]
"""Posts the commands of a request. The argument is the request's credential for tools. Raises Refused, which refuses
the request before the first byte."""

TICK_SECONDS = 1.0
"""Seconds between checks, on a silent stream, whether a heartbeat is due or the server is stopping."""

LEAVE_SECONDS = 5.0
"""Maximum seconds for posting the abort of an abandoned run. A posted abort takes effect even if this time has
passed."""

MODEL_FAILED_STATUS = 502
"""The HTTP status of a JSON answer whose run failed: the model behind this server gave no valid answer."""

TRACE_WAIT_SECONDS = 1.0
"""Seconds that the end of an answer may wait for the last record of its trace. After that, the trace is sent as it
is."""


class RunAnswer(Response):
    """An answer that streams the run that `run` finds, and ends when this run ends.

    `post` posts the commands after the answer has begun to follow the chat; it is None if the run is already open. With
    `joins`, the projection first gets the chat's present state (`Projection.join`), and `run` names the open run. If
    the client disconnects, the run is aborted; if the run has not begun, its message `request_id` is removed from the
    queue. With `detaches`, neither happens. `is_tagged` puts the chat's id as SSE id on the first and the last frame.
    `more` are further headers of the answer.
    """

    def __init__(
        self,
        edge: Edge,
        principal: Principal,
        chat_id: str,
        projection: Projection,
        run: RunSlice,
        *,
        post: Post | None = None,
        request_id: str = "",
        joins: bool = False,
        wants_json: bool = False,
        detaches: bool = False,
        is_tagged: bool = False,
        more: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__()
        self._edge = edge
        self._principal = principal
        self._chat_id = chat_id
        self._projection = projection
        self._run = run
        self._post = post
        self._request_id = request_id
        self._joins = joins
        self._wants_json = wants_json
        self._detaches = detaches
        self._is_tagged = is_tagged
        self._more = dict(more or {})
        self._is_left = False
        self._begun_at = self._written_at = time.monotonic()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self._opened() as (state, watch):
            if self._post is not None:
                await self._post(self._edge.forwarded(scope))
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._listen, receive, tasks.cancel_scope)
                if self._wants_json:
                    await self._tell_once(scope, receive, send, state, watch)
                else:
                    await self._tell(scope, send, state, watch)
                tasks.cancel_scope.cancel()
            if self._is_left and not self._detaches and not self._projection.is_done:
                await self._stop(watch)
            self._say_ended()

    def _opened(self) -> AbstractAsyncContextManager[tuple[ChatState | None, RunWatch]]:
        store = self._edge.store
        return join_chat(store, self._chat_id) if self._joins else _watched(self._edge, self._chat_id)

    def _say_ended(self) -> None:
        """Log one line about the end of the answer."""
        failure = self._projection.failure
        _log.info(
            "oneshot.ended",
            chat_id=self._chat_id,
            run_id=self._run.run_id,
            wire=type(self._projection).__name__,
            is_left=self._is_left and not self._projection.is_done,
            code=failure.code if failure else None,
            duration_ms=int((time.monotonic() - self._begun_at) * 1000),
        )

    async def _listen(self, receive: Receive, telling: anyio.CancelScope) -> None:
        """Wait until the client disconnects, then cancel the answer."""
        await goodbye(receive)
        self._is_left = True
        telling.cancel()

    async def _tell(self, scope: Scope, send: Send, state: ChatState | None, watch: RunWatch) -> None:
        projection = self._projection
        headers = [*SSE_HEADERS, *((name.lower().encode(), value.encode()) for name, value in self._more.items())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        is_first = True
        async for frames in self._frames(state, watch):
            blocks: list[bytes] = []
            for index, frame in enumerate(frames):
                # SES-1: the first and the last frame have the chat's id as their SSE id, since some formats have no
                # field for it
                is_tagged = self._is_tagged and (is_first or (projection.is_done and index == len(frames) - 1))
                blocks.append(encode_event(frame.event, frame.data, self._chat_id if is_tagged else None))
                is_first = False
            if not blocks and time.monotonic() - self._written_at >= self._edge.limits.heartbeat_seconds:
                blocks.append(heartbeat(int(time.time())))
            if blocks and not await self._write(scope, send, b"".join(blocks)):
                return
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _write(self, scope: Scope, send: Send, data: bytes) -> bool:
        """Send bytes. Returns False if the client accepted no data for too long. The client's connection is then
        dropped, as if the client had disconnected."""
        try:
            async with Deadline(self._edge.limits.subscriber_stall_seconds):
                await send({"type": "http.response.body", "body": data, "more_body": True})
        except TimeoutError:
            self._is_left = True
            abort_of(scope)()
            return False
        self._written_at = time.monotonic()
        return True

    async def _tell_once(
        self, scope: Scope, receive: Receive, send: Send, state: ChatState | None, watch: RunWatch
    ) -> None:
        projection = self._projection
        async for _ in self._frames(state, watch):
            pass
        if projection.failure is None:
            await answer(200, projection.body(), self._more)(scope, receive, send)
            return
        status = STATUS_OF_CODE.get(projection.failure.code, MODEL_FAILED_STATUS)
        # The message is in the chat already: a client that repeats the request automatically would send it twice.
        headers = {**self._more, "x-should-retry": "false"}
        await answer(status, projection.failed_body(), headers)(scope, receive, send)

    async def _frames(self, state: ChatState | None, watch: RunWatch) -> AsyncIterator[list[OutFrame]]:
        """Yield the frames of each entry of the log, and [] after each second of silence, until the projection is
        done."""
        projection = self._projection
        yield projection.begin() if state is None else projection.join(state)
        while not projection.is_done:
            try:
                events = await watch.next(TICK_SECONDS)
            except ThreadcastError as lost:
                yield projection.fail(lost.code, lost.message)
                return
            frames: list[OutFrame] = []
            for event in events:
                if self._run.take(event):
                    if self._run.has_ended:
                        await self._diagnose()
                    frames += projection.feed(event)
            if self._run.refusal is not None:
                frames += projection.fail(*self._run.refusal)
            elif self._run.run_id is None and self._run.is_behind_pause:
                if not self._detaches:
                    await self._stop(watch)
                frames += projection.fail("conflict", AWAITS_DECISION)
            elif self._edge.hub.is_closing:
                frames += projection.fail("unavailable", "the server is stopping; the run goes on, read the chat later")
            yield frames

    async def _diagnose(self) -> None:
        """Fetch the trace of the ended run, if the format has a field for it and the caller may see it."""
        projection, run_id = self._projection, self._run.run_id
        is_wanted = projection.shows_diagnostics and self._edge.limits.trace_hours > 0 and may_diagnose(self._principal)
        if is_wanted and run_id is not None:
            projection.diagnostics = await diagnostics_within(
                self._edge, self._principal, self._chat_id, run_id, TRACE_WAIT_SECONDS
            )

    async def _stop(self, watch: RunWatch) -> None:
        """Remove the request's message from the queue, or abort its run if it has begun. A run that has ended is not
        changed."""
        own, chat_id = self._run, self._chat_id
        with anyio.CancelScope(shield=True), anyio.move_on_after(LEAVE_SECONDS):
            try:
                if own.run_id is None and not own.is_over:
                    await lay_down_internal(self._edge, self._principal.id, chat_id, cancel_of(self._request_id))
                    while own.run_id is None and not own.is_over:
                        for event in await watch.next(TICK_SECONDS):
                            own.take(event)
                if own.run_id is not None and not own.is_over:
                    abort = Abort(client_request_id=f"oneshot-{secrets.token_hex(12)}", run_id=own.run_id)
                    await lay_down(self._edge, self._principal, chat_id, abort)
            except ThreadcastError as lost:
                _log.warning("oneshot.not_stopped", chat_id=chat_id, run_id=own.run_id, reason=lost.code)


@asynccontextmanager
async def _watched(edge: Edge, chat_id: str) -> AsyncIterator[tuple[None, RunWatch]]:
    async with watch_chat(edge.store, chat_id) as watch:
        yield None, watch
