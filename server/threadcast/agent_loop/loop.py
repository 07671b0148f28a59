"""The agent loop, which carries out the steps of the plan until the run waits.

The loop keeps no state between steps. It commits each result through the actor, and the commit that ends one step
announces the next step. Therefore the log of a cancelled loop shows exactly which steps were completed. The loop writes
every error of a model or a tool to the log as an event. An exception that leaves the loop is an error of the store, or
a bug.
"""

import time
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from functools import partial

import anyio
import structlog
from msgspec.structs import replace

from threadcast.agent_loop.answer.assembler import Assembler, UsedCallIds
from threadcast.agent_loop.answer.continuation import Continuation
from threadcast.agent_loop.answer.thinking import Thinking, ops_of
from threadcast.agent_loop.calls.hiding import hides
from threadcast.agent_loop.calls.memory import recall
from threadcast.agent_loop.calls.reports import reporter
from threadcast.agent_loop.calls.telling import tell
from threadcast.agent_loop.durable.execution import Execution
from threadcast.agent_loop.durable.inputs import durable_agent, inputs_of
from threadcast.agent_loop.durable.operations import DurableOperations
from threadcast.agent_loop.durable.plan import say_found
from threadcast.agent_loop.history.attachments import resolve
from threadcast.agent_loop.history.request import build_request
from threadcast.agent_loop.history.summaries import SUMMARY_SECONDS, summary_request
from threadcast.agent_loop.outcomes import EndedCall, break_off, finish, say_fallback, summarized, tool_done
from threadcast.agent_loop.ports import Authorizations, ChatPort, ModelTable
from threadcast.agent_loop.reasons import Reasons, is_down
from threadcast.agent_loop.steps import CallModel, RunAgent, RunTool, Step, Summarize, Wait
from threadcast.agent_loop.tracing import RoundTrace, aborted_trace, summary_trace, tool_trace
from threadcast.base.telemetry import Metrics
from threadcast.chat.owner_state import Run
from threadcast.chat.params import effective
from threadcast.chat.runtime import say_runtime
from threadcast.chat.tool_results import keep_result
from threadcast.custom_agents.context import AgentContext
from threadcast.profiles.context import context_of, interaction_of, payloads_of
from threadcast.providers.base import AgentDataDelta, PromptProgress, model_info
from threadcast.providers.complete import Completion, complete
from threadcast.providers.prices import with_cost
from threadcast.settings.limits import DEFAULT_LIMITS
from threadcast.tools.base import Tool
from threadcast.tools.context import ToolContext, no_authorization
from threadcast.tools.runner import ToolRunner
from threadcast_protocol.wire.deltas import MergeExtra
from threadcast_protocol.wire.errors import ModelFailed
from threadcast_protocol.wire.events import AgentData
from threadcast_protocol.wire.ids import NewId

__all__ = ["AgentLoop"]

_log = structlog.get_logger()


class AgentLoop:
    """Carries out the steps of one chat. `data_dir` is the directory into which tools may write. `answer_seconds` is
    the maximum duration of a model call, even if its stream never pauses. `awake_seconds` is the maximum time for which
    the code of a durable agent may work between two operations.

    `current` is the step that the loop carries out now, or None. The event `step_ended` is set when this step has
    ended.
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
        answer_seconds: float,
        awake_seconds: float = DEFAULT_LIMITS.agent_awake_seconds,
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
        self._awake_seconds = awake_seconds
        self.current: Step | None = None
        self.step_ended = anyio.Event()
        self.execution: Execution | None = None
        """The execution of the durable agent that runs now, or None."""

    async def run(self, step: Step) -> None:
        """Carry out `step` and all steps after it. Return when the run waits, or when it has ended and no message is
        queued."""
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
                    case RunAgent():
                        step = await self._run_agent(step)
            finally:
                self.current = None
                self.step_ended.set()

    async def _call_model(self, step: CallModel) -> Step:
        """Stream the model's answer and commit its end. If the model is down before any part of the answer is shown,
        ask the next model of the profile's `fallback`."""
        state, tools = self._chat.state, self._chat.tools()
        assembler = Assembler(
            UsedCallIds(state.nodes),
            lambda: self._new_id("call"),
            reasoning=effective(state, "reasoning", tools.profile.params).value,
            hides=partial(hides, tools),
        )
        trace = RoundTrace(state, step.message_id, step.model, tools.profile.params, tools.scope)
        is_shown = step.continuing and state.draft is not None and bool(state.draft.content)
        others = deque(model for model in tools.profile.fallback if model != step.model and not is_shown)
        failure: ModelFailed | None = None
        try:
            while True:
                try:
                    await self._stream_answer(step, assembler, trace)
                    failure = None
                    break
                except ModelFailed as wrong:
                    failure = wrong
                trace.fail(failure, step.model)
                _log.warning("model.failed", model=step.model, code=failure.code, detail=failure.detail)
                self._metrics.model_calls.labels(step.model.partition("/")[0], failure.code).inc()
                if not others or assembler.has_started or not is_down(failure):
                    break
                step = await self._ask_another(step, others.popleft())
        except anyio.get_cancelled_exc_class():
            self._chat.trace(trace.end(assembler.answer(is_broken=True)))
            raise
        if failure is not None:
            broken = assembler.answer(is_broken=True)
            self._chat.trace(trace.end(broken))
            told = partial(self._reasons.failure, failure, step.model)
            return await self._chat.commit(
                lambda builder: break_off(builder, step, broken, told(builder.now_ms), self._chat.tools())
            )
        self._metrics.model_calls.labels(step.model.partition("/")[0], "ok").inc()
        answer = assembler.answer()
        if answer.timings is None:
            answer = replace(answer, timings=trace.timings(answer.usage))
            await self._chat.stream(MergeExtra({"timings": answer.timings or {}}))
        self._chat.trace(trace.end(answer))
        return await self._chat.commit(lambda builder: finish(builder, step, answer, self._chat.tools()))

    async def _stream_answer(self, step: CallModel, assembler: Assembler, trace: RoundTrace) -> None:
        """Ask `step.model` and stream its answer. Raises ModelFailed."""
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
            state,
            tools,
            provider.name,
            model,
            with_tools=step.with_tools,
            shown=shown,
            prefills=prefills,
            kept=self._chat.kept_view,
        )
        unsaid = Continuation(shown, is_prefilled=bool(request.prefix))
        info = model_info(provider, model)
        assembler.with_cost = partial(with_cost, provider=provider, model=model)
        if info is not None:
            params = replace(request.params, extra_body=info.extra_body)
            request = replace(request, stream=info.streams, params=params)
        trace.ask(provider.name, request, state)
        request = await resolve(request, info, self._chat.fetch_blob, trace.left_out.append)
        asked_at, has_heard = time.monotonic(), False
        assembler.prompt_read = None
        try:
            with anyio.move_on_after(self._answer_seconds) as timeout:
                async with aclosing(provider.stream(request)) as deltas:
                    async for delta in deltas:
                        if isinstance(delta, PromptProgress):
                            await self._show_progress(delta, assembler)
                            continue
                        if isinstance(delta, AgentDataDelta):
                            await self._chat.stream(AgentData(step.message_id, delta.type, delta.data))
                            continue
                        if not has_heard:  # measured before `unsaid`, which may hold text back
                            has_heard = True
                            await self._end_progress(assembler)
                            self._metrics.model_first_delta_seconds.observe(time.monotonic() - asked_at)
                        trace.feed(delta)
                        for op in ops_of(unsaid.feed(delta), assembler, thinking):
                            await self._chat.stream(op)
            if timeout.cancelled_caught:
                sentence = f"The model did not finish within {self._answer_seconds:g} s and was stopped."
                raise ModelFailed("timeout", sentence, retryable=True)
        except ModelFailed as failure:
            failure.reason = self._reasons.cleaned(failure.reason, request.system)
            for op in ops_of(unsaid.end(), assembler, thinking, is_end=True):
                await self._chat.stream(op)
            raise
        for op in ops_of((), assembler, thinking, is_end=True):
            await self._chat.stream(op)

    async def _show_progress(self, read: PromptProgress, assembler: Assembler) -> None:
        """Show how much of the prompt the model has read: as numbers in the message's `extra`, and as the run's status
        (EVT-12)."""
        op = assembler.feed(read)
        if op is not None:
            await self._chat.stream(op)
            text = f"reading the prompt: {assembler.prompt_read} %"
            await self._chat.commit(lambda builder: say_runtime(builder, "generating", status_text=text))

    async def _end_progress(self, assembler: Assembler) -> None:
        """Clear the status of the prompt's progress, because the answer has begun."""
        if assembler.prompt_read is not None:
            await self._chat.commit(lambda builder: say_runtime(builder, "generating"))

    async def _ask_another(self, step: CallModel, model: str) -> CallModel:
        """Return a step that asks `model` for the same round and message, because the model of `step` is down
        (EVT-14)."""
        _log.warning("model.fallback", model=step.model, fallback=model)
        tools = self._chat.tools()
        await self._chat.commit(lambda builder: say_fallback(builder, model, tools.window_tokens(model)))
        await self._chat.stream(MergeExtra({"model": model}))
        return replace(step, model=model)

    async def _run_agent(self, step: RunAgent) -> Step:
        """Run the function of a durable agent until the function ends or is suspended."""
        agent = durable_agent(self._models, step.name)
        if agent is None:  # impossible: the actor releases such a chat to other workers
            raise ModelFailed("llm_error", f"This worker has no agent {step.name!r}.")
        run = self._chat.state.private.run
        if run is not None and run.agent is not None and run.agent.missing_since_ms is not None:
            await self._chat.commit(say_found)
        self.execution = execution = Execution(self._chat, agent, self._awake_seconds, lambda: self._new_id("call"))
        try:
            inputs = inputs_of(self._chat.state, self._chat.tools())
            return await execution.run(AgentContext(inputs, DurableOperations(execution, self._run_tool)))
        finally:
            self.execution = None

    async def _summarize(self, step: Summarize) -> Step:
        """Ask the summarizer for a summary and commit the summary. If the summarizer fails, the history is cut without
        a summary, and the run continues (HIST-5)."""
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
            lambda builder: summarized(builder, step, done.text, elapsed_ms, self._chat.tools(), done.usage)
        )

    async def _run_tools(self, step: RunTool) -> Step:
        """Run the call of `step` and the calls of `step.beside` at the same time. Commit the results in call order,
        each result as soon as all results before it are committed (LOOP-3)."""
        if not step.beside:
            return await self._end_call(step, await self._run_tool(step), ())
        batch = (step, *step.beside)
        ended: list[EndedCall | None] = [None] * len(batch)
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
            except Exception as wrong:  # raised again outside the task group, which would wrap it
                trouble = wrong
                tasks.cancel_scope.cancel()
        if trouble is not None:
            raise trouble
        return after

    async def _end_call(self, step: RunTool, ended: EndedCall | None, rest: tuple[RunTool, ...]) -> Step:
        if ended is None:
            return Wait()
        result = replace(ended.done.result, content=ended.kept.content)
        return await self._chat.commit(
            lambda builder: tool_done(
                builder,
                step.call,
                result,
                ended.done.elapsed_ms,
                self._chat.tools(),
                ended.kept.attachments,
                ended.withheld,
                rest,
            )
        )

    async def _run_tool(self, step: RunTool) -> EndedCall | None:
        """Run the tool of `step`. Returns None if the run has ended."""
        state = self._chat.state
        run = state.private.run
        call = step.call
        tools = self._chat.tools()
        if run is None:
            return None
        name = call.function.name
        tool = tools.get(name) if run.commit is None else tools.commit_tool(name)

        context = ToolContext(
            chat_id=state.chat_id,
            run_id=run.run_id,
            tool_call_id=call.id,
            idempotency_key=f"{state.chat_id}:{call.id}",
            principal=run.principal,
            metadata=state.thread.metadata or {},
            context=context_of(state, tools.profile.params),
            data_dir=self._data_dir,
            report=reporter(state, step, self._chat.offer),
            is_cancelled=lambda: False,
            scope=tools.scope,
            interaction=interaction_of(state),
            payloads=payloads_of(state),
            chats=self._chat.chats_of(call.id),
            processes=self._chat.processes_of(call.id),
            ask=self._chat.questions_of(name),
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
        return EndedCall(
            done=replace(done, result=told.result),
            kept=kept,
            withheld=told.withheld,
            content=done.result.content,
            is_json=done.result.is_json,
        )

    def _authorization_for(self, tool: Tool | None, chat_id: str, run: Run) -> Callable[[], Awaitable[str | None]]:
        """Return the callback by which one call gets its caller's `Authorization`. The callback is bound to the run's
        own principal and requests (TOOL-7)."""
        if self._authorizations is None or tool is None or not tool.traits.forward_auth:
            return no_authorization
        request_ids = run.request_ids if run.commit is None else [run.commit.request_id]
        return partial(self._authorizations.authorization, run.principal.id, chat_id, request_ids)
