"""The agent loop: carries out the steps of the plan until the run waits. The only part of the agent that awaits.

It owns nothing: every result is committed through the actor, and the commit that ends one step announces the next.
So a cancelled loop leaves a log that says exactly how far it came. Everything that a model or a tool can do wrong ends
as a line in the log; exceptions that leave here are the store's or our own mistakes.
"""

import time
from collections.abc import Callable
from contextlib import aclosing
from typing import Protocol, TypeVar

import anyio
import structlog
from msgspec.structs import replace

from protocol.blobs import Blob
from protocol.deltas import DeltaOp
from protocol.errors import ModelFailed
from protocol.events import ToolStatus
from protocol.ids import NewId
from protocol.ledger import Ledger
from protocol.params import effective
from protocol.runs import asking_message_id
from protocol.state import ChatState
from server.agent.answers import break_off, finish, tool_done
from server.agent.assembler import Assembler
from server.agent.attachments import resolve
from server.agent.client_events import Emitted, as_event
from server.agent.profile import ChatTools
from server.agent.request import build_request
from server.agent.steps import CallModel, RunTool, Step, Wait
from server.agent.tool_results import keep_result
from server.providers.base import Provider, model_info
from server.telemetry import Metrics
from server.tools.base import ClientEvent, Report, ToolContext
from server.tools.runner import ToolRunner

__all__ = ["AgentLoop", "ChatPort", "ModelTable"]

_log = structlog.get_logger()
_T = TypeVar("_T")


class ChatPort(Protocol):
    """What the actor lends to the loop."""

    @property
    def state(self) -> ChatState: ...

    async def commit(self, write: Callable[[Ledger], _T]) -> _T:
        """Write one entry, behind everything that was offered before; returns once it is durable."""

    async def stream(self, op: DeltaOp) -> None:
        """Offer a delta of the open answer; waits while too much is not yet durable."""

    def offer(self, event: ToolStatus | Emitted) -> None:
        """Offer a progress report or a tool's event; never waits, the latest progress of a call wins."""

    async def fetch_blob(self, hash: str) -> Blob | None:
        """A blob of this chat; None when it is gone."""

    async def put_blob(self, blob: Blob) -> bool:
        """Lay a blob beside this chat, for an entry that refers to it; False when that cannot be."""

    def tools(self) -> ChatTools:
        """The tools that this chat is offered now."""


class ModelTable(Protocol):
    def resolve(self, name: str) -> tuple[Provider, str]:
        """The provider of `provider/model` and the model's name with it. Raises ModelFailed."""


class AgentLoop:
    """Runs one chat's steps. `data_dir` is where tools may write.

    `current` is the step that is being carried out; `step_ended` is set when it is through.
    """

    def __init__(
        self,
        chat: ChatPort,
        models: ModelTable,
        runner: ToolRunner,
        metrics: Metrics,
        *,
        new_id: NewId,
        data_dir: str,
    ) -> None:
        self._chat = chat
        self._models = models
        self._runner = runner
        self._metrics = metrics
        self._new_id = new_id
        self._data_dir = data_dir
        self.current: Step | None = None
        self.step_ended = anyio.Event()

    async def run(self, step: Step) -> None:
        """Carry out `step` and all that follow, until the run waits or ends and nothing is queued."""
        while not isinstance(step, Wait):
            self.current, self.step_ended = step, anyio.Event()
            try:
                step = await (self._call_model(step) if isinstance(step, CallModel) else self._run_tool(step))
            finally:
                self.current = None
                self.step_ended.set()

    async def _call_model(self, step: CallModel) -> Step:
        state = self._chat.state
        assembler = Assembler(
            {call.id for node in state.nodes.values() for call in node.tool_calls},
            lambda: self._new_id("call"),
            reasoning=effective(state, "reasoning", self._chat.tools().profile.params).value,
        )
        try:
            provider, model = self._models.resolve(step.model)
            prefix = str(state.draft.content) if step.continuing and state.draft is not None else ""
            request = build_request(
                state, self._chat.tools(), provider.name, model, with_tools=step.with_tools, prefix=prefix
            )
            info = model_info(provider, model)
            if info is not None:
                assembler.prices = info.prices
                request = replace(request, stream=info.streams)
            request = await resolve(request, info, self._chat.fetch_blob)
            asked_at = time.monotonic()
            async with aclosing(provider.stream(request)) as deltas:
                async for delta in deltas:
                    if not assembler.has_started:
                        self._metrics.model_first_delta_seconds.observe(time.monotonic() - asked_at)
                    op = assembler.feed(delta)
                    if op is not None:
                        await self._chat.stream(op)
        except ModelFailed as failure:
            _log.warning("model.failed", model=step.model, code=failure.code, detail=failure.detail)
            self._metrics.model_calls.labels(step.model.partition("/")[0], failure.code).inc()
            broken = failure
            answer = assembler.answer(is_broken=True)
            return await self._chat.commit(
                lambda ledger: break_off(ledger, step, answer, broken.code, broken.message, self._chat.tools())
            )
        self._metrics.model_calls.labels(step.model.partition("/")[0], "ok").inc()
        answer = assembler.answer()
        return await self._chat.commit(lambda ledger: finish(ledger, step, answer, self._chat.tools()))

    async def _run_tool(self, step: RunTool) -> Step:
        state = self._chat.state
        run = state.private.run
        call = step.call
        tools = self._chat.tools()
        if run is None:
            return Wait()

        def report(progress: Report) -> None:
            if isinstance(progress, ClientEvent):
                event = as_event(progress)
                if event is not None:
                    self._chat.offer(event)
                return
            self._chat.offer(
                ToolStatus(
                    tool_call_id=call.id,
                    name=call.function.name,
                    message_id=asking_message_id(state, call.id),
                    index=run.calls_count,
                    status="progress",
                    stage=progress.stage,
                    message=progress.message,
                    progress=progress.fraction,
                    data=progress.data,
                )
            )

        context = ToolContext(
            chat_id=state.chat_id,
            run_id=run.run_id,
            tool_call_id=call.id,
            idempotency_key=f"{state.chat_id}:{call.id}",
            principal=run.principal,
            metadata=state.thread.metadata or {},
            context=run.context or effective(state, "context", tools.profile.params).value or {},
            data_dir=self._data_dir,
            report=report,
            is_cancelled=lambda: False,
        )
        done = await self._runner.run(
            tools.get(call.function.name), call.function.name, step.arguments, context, tools.names
        )
        self._metrics.tool_calls.labels("error" if done.result.failed else "done").inc()
        kept = await keep_result(done.result.content, call.function.name, state.chat_id, self._chat.put_blob)
        result = replace(done.result, content=kept.content)
        return await self._chat.commit(
            lambda ledger: tool_done(ledger, call, result, done.elapsed_ms, self._chat.tools(), kept.attachments)
        )
