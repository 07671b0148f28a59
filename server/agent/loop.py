"""The agent loop: carries out the steps of the plan until the run waits. The only part of the agent that awaits.

It owns nothing: every result is committed through the actor, and the commit that ends one step announces the next.
So a cancelled loop leaves a log that says exactly how far it came. Everything that a model or a tool can do wrong ends
as a line in the log; exceptions that leave here are the store's or our own mistakes.
"""

import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from functools import partial
from typing import NamedTuple

import anyio
import structlog
from msgspec.structs import replace

from protocol.deltas import MergeExtra
from protocol.errors import ModelFailed
from protocol.events import ToolStatus
from protocol.ids import NewId
from protocol.params import effective
from protocol.runs import asking_message_id
from protocol.runtime import say_runtime
from protocol.state import Run
from server.agent.answer.assembler import Assembler
from server.agent.answer.continuation import Continuation
from server.agent.answer.thinking import Thinking
from server.agent.calls.client_events import as_event
from server.agent.calls.hiding import hides
from server.agent.calls.memory import recall
from server.agent.calls.results import KeptResult, keep_result
from server.agent.calls.telling import tell
from server.agent.history.attachments import resolve
from server.agent.history.request import build_request
from server.agent.history.summaries import SUMMARY_SECONDS, summary_request
from server.agent.outcomes import break_off, finish, say_fallback, summarized, tool_done
from server.agent.place.context import context_of, interaction_of, payloads_of
from server.agent.ports import Authorizations, ChatPort, ModelTable
from server.agent.reasons import Reasons
from server.agent.steps import CallModel, RunTool, Step, Summarize, Wait
from server.agent.tracing import RoundTrace, aborted_trace, summary_trace, tool_trace
from server.providers.base import Delta, PromptProgress, model_info
from server.providers.complete import Completion, complete
from server.telemetry import Metrics
from server.tools.base import ClientEvent, Report, Tool, ToolContext, no_authorization
from server.tools.runner import ToolRun, ToolRunner

__all__ = ["ANSWER_SECONDS", "AgentLoop"]

_log = structlog.get_logger()


ANSWER_SECONDS = 1_800.0
"""For one model call. Its silence is the provider's business (`idle_timeout_seconds`); this ends one that drips, or
keeps its connection alive and says nothing. The longest answers of slow local models take some ten minutes."""


def is_down(failure: ModelFailed) -> bool:
    """May another model answer where this one could not? Not when the request itself was refused, which the next one
    would refuse as well. A key that no longer holds is the operator's business, and in the log; people get their
    answer."""
    return failure.retryable or failure.code == "auth_failed"


def too_long(seconds: float) -> ModelFailed:
    return ModelFailed("timeout", f"The model did not finish within {seconds:g} s and was stopped.", retryable=True)


class _Ended(NamedTuple):
    """A call that was run, and its result as the log takes it; `withheld` is what only the model reads of it."""

    done: ToolRun
    kept: KeptResult
    withheld: str | None


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
        authorizations: Authorizations | None = None,
        answer_seconds: float = ANSWER_SECONDS,
        reasons: Reasons | None = None,
    ) -> None:
        self._chat = chat
        self._models = models
        self._runner = runner
        self._metrics = metrics
        self._new_id = new_id
        self._data_dir = data_dir
        self._authorizations = authorizations
        self._answer_seconds = answer_seconds
        self._reasons = reasons or Reasons()
        self.current: Step | None = None
        self.step_ended = anyio.Event()

    async def run(self, step: Step) -> None:
        """Carry out `step` and all that follow, until the run waits or ends and nothing is queued."""
        while not isinstance(step, Wait):
            self.current, self.step_ended = step, anyio.Event()
            try:
                match step:
                    case CallModel():
                        step = await self._call_model(step)
                    case Summarize():
                        step = await self._summarize(step)
                    case RunTool():
                        step = await self._run_tools(step)
            finally:
                self.current = None
                self.step_ended.set()

    async def _call_model(self, step: CallModel) -> Step:
        state, tools = self._chat.state, self._chat.tools()
        assembler = Assembler(
            {call.id for node in state.nodes.values() for call in node.tool_calls},
            lambda: self._new_id("call"),
            reasoning=effective(state, "reasoning", tools.profile.params).value,
            hides=partial(hides, tools),
        )
        trace = RoundTrace(state, step.message_id, step.model, tools.profile.params, tools.scope)
        try:
            step, failure = await self._ask_models(step, assembler, trace)
        except anyio.get_cancelled_exc_class():
            self._chat.trace(trace.end(assembler.answer(is_broken=True)))
            raise
        if failure is not None:
            broken = assembler.answer(is_broken=True)
            self._chat.trace(trace.end(broken))
            told = partial(self._reasons.failure, failure, step.model)
            return await self._chat.commit(
                lambda ledger: break_off(ledger, step, broken, told(ledger.now_ms), self._chat.tools())
            )
        self._metrics.model_calls.labels(step.model.partition("/")[0], "ok").inc()
        answer = assembler.answer()
        if answer.timings is None:
            answer = replace(answer, timings=trace.timings(answer.usage))
            await self._chat.stream(MergeExtra({"timings": answer.timings or {}}))
        self._chat.trace(trace.end(answer))
        return await self._chat.commit(lambda ledger: finish(ledger, step, answer, self._chat.tools()))

    async def _ask_models(
        self, step: CallModel, assembler: Assembler, trace: RoundTrace
    ) -> tuple[CallModel, ModelFailed | None]:
        """The step with the model that answered, and how it failed if it did. While nothing of the answer is shown,
        the models of the profile's `fallback` are asked one after the other in place of one that is down."""
        draft = self._chat.state.draft
        is_shown = step.continuing and draft is not None and bool(draft.content)
        others = deque(m for m in self._chat.tools().profile.fallback if m != step.model and not is_shown)
        while True:
            try:
                await self._stream_answer(step, assembler, trace)
                return step, None
            except ModelFailed as failure:
                trace.fail(failure, step.model)
                _log.warning("model.failed", model=step.model, code=failure.code, detail=failure.detail)
                self._metrics.model_calls.labels(step.model.partition("/")[0], failure.code).inc()
                if not others or assembler.has_started or not is_down(failure):
                    return step, failure
            step = await self._ask_another(step, others.popleft())

    async def _stream_answer(self, step: CallModel, assembler: Assembler, trace: RoundTrace) -> None:
        """Ask `step.model` and stream what it says. Raises ModelFailed."""
        state = self._chat.state
        try:
            provider, model = self._models.resolve(step.model)
        except ModelFailed as unknown:
            raise ModelFailed(unknown.code, unknown.message, detail=unknown.detail, retryable=True) from None
        assembler.provider = provider.name
        shown = str(state.draft.content) if step.continuing and state.draft is not None else ""
        thinking = Thinking(state.draft.message.extra if state.draft is not None else {})
        prefills = provider.prefills(model)
        tools = self._chat.tools()
        request = build_request(
            state, tools, provider.name, model, with_tools=step.with_tools, shown=shown, prefills=prefills
        )
        unsaid = Continuation(shown, is_prefilled=bool(request.prefix))
        info = model_info(provider, model)
        assembler.prices = info.prices if info is not None else None
        if info is not None:
            params = replace(request.params, extra_body=info.extra_body)
            request = replace(request, stream=info.streams, params=params)
        trace.ask(provider.name, request)
        request = await resolve(request, info, self._chat.fetch_blob, trace.left_out.append)
        asked_at, has_heard = time.monotonic(), False
        assembler.prompt_read = None
        try:
            with anyio.move_on_after(self._answer_seconds) as patience:
                async with aclosing(provider.stream(request)) as deltas:
                    async for delta in deltas:
                        if isinstance(delta, PromptProgress):
                            await self._show_progress(delta, assembler)
                            continue
                        if not has_heard:  # what a continuation says may be held back for a while
                            has_heard = True
                            await self._end_progress(assembler)
                            self._metrics.model_first_delta_seconds.observe(time.monotonic() - asked_at)
                        trace.feed(delta)
                        await self._show(unsaid.feed(delta), assembler, thinking)
            if patience.cancelled_caught:
                raise too_long(self._answer_seconds)
        except ModelFailed as failure:
            failure.reason = self._reasons.cleaned(failure.reason, request.system)
            await self._show(unsaid.end(), assembler, thinking)
            await self._show_thinking(thinking.end(), assembler)
            raise
        await self._show_thinking(thinking.end(), assembler)

    async def _show_progress(self, read: PromptProgress, assembler: Assembler) -> None:
        """Show how far the prompt is read: as numbers in the message's `extra`, and as the run's status (EVT-12)."""
        op = assembler.feed(read)
        if op is not None:
            await self._chat.stream(op)
            text = f"reading the prompt: {assembler.prompt_read} %"
            await self._chat.commit(lambda ledger: say_runtime(ledger, "generating", status_text=text))

    async def _end_progress(self, assembler: Assembler) -> None:
        """Clear the status of the prompt's progress, since the first word has come."""
        if assembler.prompt_read is not None:
            await self._chat.commit(lambda ledger: say_runtime(ledger, "generating"))

    async def _show_thinking(self, figure: MergeExtra | None, assembler: Assembler) -> None:
        """Stream how long the model has thought; does nothing for reasoning that is not shown."""
        if figure is not None and assembler.shows_reasoning:
            await self._chat.stream(figure)

    async def _show(self, deltas: Sequence[Delta], assembler: Assembler, thinking: Thinking) -> None:
        """Stream these deltas. Raises ModelFailed: the answer is longer than one may be."""
        for delta in deltas:
            await self._show_thinking(thinking.feed(delta), assembler)
            op = assembler.feed(delta)
            if op is not None:
                await self._chat.stream(op)

    async def _ask_another(self, step: CallModel, model: str) -> CallModel:
        """The same round and the same message, answered by `model`, since the one that was asked is down (EVT-14)."""
        _log.warning("model.fallback", model=step.model, fallback=model)
        tools = self._chat.tools()
        await self._chat.commit(lambda ledger: say_fallback(ledger, model, tools.window_tokens(model)))
        await self._chat.stream(MergeExtra({"model": model}))
        return replace(step, model=model)

    async def _summarize(self, step: Summarize) -> Step:
        """Without a summary the history is cut all the same: a run does not fail for it (HIST-5)."""
        defaults = self._chat.tools().profile.params
        done, failure = Completion(""), None
        begun_at = time.monotonic()
        try:
            provider, model = self._models.resolve(step.model)
            with anyio.fail_after(SUMMARY_SECONDS):
                done = await complete(provider, summary_request(self._chat.state, defaults, model))
            if not done.text.strip():
                raise ModelFailed("llm_error", "The summarizer said nothing.", detail="an empty summary")
        except ModelFailed as failed:
            failure = failed
        except TimeoutError:
            failure = ModelFailed("timeout", "No summary in time.", detail=f"no summary in {SUMMARY_SECONDS:g} s")
        elapsed_ms = round((time.monotonic() - begun_at) * 1000)
        outcome = failure.code if failure is not None else "ok"
        if failure is not None:
            _log.warning("history.summary_failed", model=step.model, code=outcome, detail=failure.detail)
        self._metrics.model_calls.labels(step.model.partition("/")[0], outcome).inc()
        self._chat.trace(summary_trace(self._chat.state, step, done, elapsed_ms, failure))
        return await self._chat.commit(
            lambda ledger: summarized(ledger, step, done.text, elapsed_ms, self._chat.tools(), done.usage)
        )

    async def _run_tools(self, step: RunTool) -> Step:
        """The call, and those beside it at the same time; results are committed in call order, each as soon as it and
        all before it are there (LOOP-3)."""
        if not step.beside:
            return await self._end_call(step, await self._run_tool(step), ())
        batch = (step, *step.beside)
        ended: list[_Ended | None] = [None] * len(batch)
        has_ended = [anyio.Event() for _ in batch]

        async def run_one(number: int) -> None:
            ended[number] = await self._run_tool(batch[number])
            has_ended[number].set()

        after: Step = Wait()
        trouble: Exception | None = None
        async with anyio.create_task_group() as tasks:
            for number in range(len(batch)):
                tasks.start_soon(run_one, number)
            try:
                for number, each in enumerate(batch):
                    await has_ended[number].wait()
                    after = await self._end_call(each, ended[number], batch[number + 1 :])
            except Exception as wrong:  # carried out of the group bare: the turn tells the store's errors by their type
                trouble = wrong
                tasks.cancel_scope.cancel()
        if trouble is not None:
            raise trouble
        return after

    async def _end_call(self, step: RunTool, ended: _Ended | None, rest: tuple[RunTool, ...]) -> Step:
        if ended is None:
            return Wait()
        result = replace(ended.done.result, content=ended.kept.content)
        return await self._chat.commit(
            lambda ledger: tool_done(
                ledger,
                step.call,
                result,
                ended.done.elapsed_ms,
                self._chat.tools(),
                ended.kept.attachments,
                ended.withheld,
                rest,
            )
        )

    async def _run_tool(self, step: RunTool) -> _Ended | None:
        """None: the run is over."""
        state = self._chat.state
        run = state.private.run
        call = step.call
        tools = self._chat.tools()
        if run is None:
            return None
        name = call.function.name
        tool = tools.get(name) if run.commit is None else tools.commit_tool(name)

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
                    index=step.index,
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
            context=context_of(state, tools.profile.params),
            data_dir=self._data_dir,
            report=report,
            is_cancelled=lambda: False,
            scope=tools.scope,
            interaction=interaction_of(state),
            payloads=payloads_of(state),
            chats=self._chat.chats_of(call.id),
            processes=self._chat.processes_of(call.id),
            memory=recall(state, step.at_ms),
            authorization=self._authorization_for(tool, state.chat_id, run),
        )
        begun_at = time.monotonic()
        try:
            done = await self._runner.run(tool, name, step.arguments, context, tools.names)
        except anyio.get_cancelled_exc_class():
            elapsed_ms = round((time.monotonic() - begun_at) * 1000)
            is_abandoned = self._runner.has_abandoned(name, call.id)
            self._chat.trace(aborted_trace(state, call, step.arguments, elapsed_ms, is_abandoned=is_abandoned))
            raise
        self._metrics.tool_calls.labels("error" if done.result.failed else "done").inc()
        self._chat.trace(tool_trace(state, call, step.arguments, done))
        told = tell(done.result, tool)
        kept = await keep_result(told.result.content, name, state.chat_id, self._chat.put_blob)
        return _Ended(replace(done, result=told.result), kept, told.withheld)

    def _authorization_for(self, tool: Tool | None, chat_id: str, run: Run) -> Callable[[], Awaitable[str | None]]:
        """The handle for one call: bound to the run's own principal and requests (TOOL-7)."""
        if self._authorizations is None or tool is None or not tool.traits.forward_auth:
            return no_authorization
        request_ids = run.request_ids if run.commit is None else [run.commit.request_id]
        return partial(self._authorizations.authorization, run.principal.id, chat_id, request_ids)
