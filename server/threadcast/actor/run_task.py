"""The task of an open run: it carries out the plan's steps, and can be stopped at any moment.

A `RunTask` connects the agent loop, which does not know the store, with the chat's writer. Every finished step is in
the log, and `recovery.recover` settles the interrupted step. A tool that ignores its cancellation is abandoned: the
task counts as ended, and the tool's later results are ignored.
"""

from collections.abc import Callable
from typing import TypeVar

import anyio
import structlog

from threadcast.actor.children import ChildChats, checked_mode
from threadcast.actor.processes import ChatProcesses, ProcessCalls
from threadcast.actor.questions import CallQuestions
from threadcast.actor.retry_policy import RetryPolicy
from threadcast.actor.run_slots import RunSlot
from threadcast.actor.worker_context import WorkerContext
from threadcast.actor.writer import Writer
from threadcast.agent_loop.calls.client_events import Emitted
from threadcast.agent_loop.history.kept_view import KeptView
from threadcast.agent_loop.loop import AgentLoop
from threadcast.agent_loop.plan import advance
from threadcast.agent_loop.steps import RunTool, Step
from threadcast.agent_loop.tracing import Trace
from threadcast.base.boundary import pass_on
from threadcast.chat.entry_builder import EntryBuilder
from threadcast.chat.owner_state import OwnerState
from threadcast.chat.runs import fail_run
from threadcast.profiles.profile import ChatTools
from threadcast.store.ports import BlobOutcome, BlobPut, Fenced, Lost
from threadcast.tools.chats import ChatsPort
from threadcast.tools.processes import ProcessesPort
from threadcast.tools.questions import AskPort
from threadcast_protocol.wire.blobs import BLOB_TTL_SECONDS, Blob
from threadcast_protocol.wire.deltas import DeltaOp
from threadcast_protocol.wire.events import AgentData, ToolStatus
from threadcast_protocol.wire.failures import Failure

__all__ = ["RunTask"]

_log = structlog.get_logger()
_T = TypeVar("_T")

STOP_SECONDS = 0.8
"""Seconds that an abort waits for the task: an abort takes at most a second, even if a tool hangs (CMD-3)."""

DRAIN_STOP_SECONDS = 0.1
"""Seconds that a hand-over waits for the task. A tool that ignores its cancellation must not delay the next owner,
which gets the chat within a second (DESIGN §4.6). The tool's result would be ignored anyway."""


class RunTaskEnded(Exception):
    """The run was stopped; its later results are ignored."""


class RunTask:
    """One task that works on a chat, and the `ChatPort` of its loop. `on_end` is called when the task has ended, with
    True if another worker owns the log."""

    def __init__(
        self,
        context: WorkerContext,
        writer: Writer,
        processes: ChatProcesses,
        slot: RunSlot,
        on_end: Callable[[bool], None],
    ) -> None:
        self._context = context
        self._processes = processes
        self._writer = writer
        self._slot = slot
        self._on_end = on_end
        self._scope = anyio.CancelScope()
        self._is_over = False
        self._done = anyio.Event()
        self._loop = AgentLoop(
            self,
            context.models,
            context.runner,
            context.metrics,
            new_id=context.new_id,
            data_dir=context.data_dir,
            authorizations=context.authorizations,
            answer_seconds=context.limits.answer_timeout_seconds,
            awake_seconds=context.limits.agent_awake_seconds,
            reasons=context.reasons,
        )

    @property
    def is_done(self) -> bool:
        return self._is_over or self._done.is_set()

    @property
    def running_tool(self) -> RunTool | None:
        """The tool call that is being carried out; None if there is none."""
        step = self._loop.current
        return step if isinstance(step, RunTool) and not self.is_done else None

    @property
    def has_single_effect(self) -> bool:
        """Whether a tool or a step is being carried out that may not run twice."""
        if self.is_done:
            return False
        if (execution := self._loop.execution) is not None:
            return execution.effects_count > 0
        step = self.running_tool
        tool = self.tools().get(step.call.function.name) if step is not None else None
        return tool is not None and tool.retry == "once"

    async def run(self, step: Step | None) -> None:
        """Carry out `step` and the steps after it. A bug ends the run, not the worker."""
        is_fenced = False
        try:
            with self._scope:
                while step is not None:
                    try:
                        await self._loop.run(step)
                        step = None
                    except (Fenced, RunTaskEnded):
                        raise
                    except BaseException as wrong:  # the boundary of a run: a bug must not end the actor
                        pass_on(wrong)
                        _log.exception("run.crashed", chat_id=self.state.chat_id)
                        step = await self.commit(self._fail)
        except Fenced:
            is_fenced = True
        except RunTaskEnded:
            pass
        finally:
            self._done.set()
            self._on_end(is_fenced)

    def _fail(self, builder: EntryBuilder) -> Step:
        fail_run(
            builder, Failure(code="internal", message="Something failed inside the server; its log has the details.")
        )
        return advance(builder, self.tools())

    def cancel(self) -> None:
        """Cancel the model call and the tools, without waiting for them."""
        self._scope.cancel()

    async def stop(self, within_seconds: float = STOP_SECONDS) -> None:
        """Cancel the model call and the tools. Returns within `within_seconds`, even if they ignore the
        cancellation."""
        self.cancel()
        with anyio.move_on_after(within_seconds):
            await self._done.wait()
        if not self._done.is_set():
            _log.warning("turn.abandoned", chat_id=self.state.chat_id)
        self._is_over = True

    async def reach_safe_point(self, deadline_seconds: float) -> None:
        """Let a running tool or step finish, or stop a model call at once. Takes at most `deadline_seconds` and
        `DRAIN_STOP_SECONDS` together."""
        tool = self.running_tool
        with anyio.move_on_after(deadline_seconds):
            if (execution := self._loop.execution) is not None:
                execution.hold()
                await execution.quiet()
            while tool is not None and self.running_tool is tool:
                await self._loop.step_ended.wait()
        await self.stop(DRAIN_STOP_SECONDS)

    # The `ChatPort`.

    @property
    def state(self) -> OwnerState:
        return self._writer.state

    @property
    def kept_view(self) -> KeptView:
        return self._writer.kept_view

    async def commit(self, write: Callable[[EntryBuilder], _T]) -> _T:
        if self._is_over:
            raise RunTaskEnded
        await self._slot.regained()  # after its timeout a tool has not waited for its slot
        return await self._writer.commit(write)

    async def changed(self) -> None:
        await self._writer.changed()

    def now_ms(self) -> int:
        return self._writer.now_ms()

    def checked_mode(self, mode: str) -> str:
        return checked_mode(self._context.profiles, self.state, mode)

    async def stream(self, op: DeltaOp | AgentData) -> None:
        if self._is_over:
            raise RunTaskEnded
        await self._writer.has_room()
        self._writer.offer(op)

    def offer(self, event: ToolStatus | Emitted) -> None:
        if not self._is_over:
            self._writer.offer(event)

    def chats_of(self, tool_call_id: str) -> ChatsPort:
        return ChildChats(self, self._slot, self._writer, self._context.profiles, tool_call_id)

    def questions_of(self, tool_name: str) -> AskPort:
        return CallQuestions(self, self._slot, self._writer, tool_name, self._context.limits.question_seconds)

    def processes_of(self, tool_call_id: str) -> ProcessesPort:
        return ProcessCalls(self, self._processes)

    async def fetch_blob(self, hash: str) -> Blob | None:
        """Return a blob of the chat; None if the store does not have the blob, or was unavailable for a minute. Retries
        as long as the writer does, so that the model is not told that an existing file is missing."""
        store, owner = self._context.store, self._writer.owner
        try:
            return await RetryPolicy(self._context.metrics).until_answered(
                lambda: store.get_blob(self.state.chat_id, owner, hash)
            )
        except Lost as trouble:
            _log.warning("blob.not_read", chat_id=self.state.chat_id, error=str(trouble.__cause__))
            return None

    async def put_blob(self, blob: Blob) -> bool:
        """Store a blob. Retries as `fetch_blob` does, because a tool's output cannot be recreated. Returns False if the
        blob was not stored."""
        store = self._context.store
        request = BlobPut(chat_id=self.state.chat_id, owner=self._writer.owner, blob=blob, ttl_seconds=BLOB_TTL_SECONDS)
        try:
            outcome = await RetryPolicy(self._context.metrics).until_answered(lambda: store.put_blob(request))
        except Lost as trouble:
            _log.warning("blob.not_kept", chat_id=self.state.chat_id, error=str(trouble.__cause__))
            return False
        if outcome is not BlobOutcome.KEPT:
            _log.warning("blob.not_kept", chat_id=self.state.chat_id, error=outcome.value)
        return outcome is BlobOutcome.KEPT

    def trace(self, record: Trace) -> None:
        if self._context.traces is not None:
            self._context.traces.offer(self.state.chat_id, self._writer.owner, record)

    def tools(self) -> ChatTools:
        return self._context.profiles.tools_of(self.state)
