"""The answers of a durable agent: text that streams into the chat and survives crashes.

Clients still show an unfinished answer after a crash. The agent writes the answer again. While the new text equals the
shown text, nothing is sent (`shown_text.py`). At the first difference the message is removed and a new message begins.
"""

import asyncio
import inspect
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any, TypeAlias

import anyio
import structlog
from msgspec.structs import replace

from threadcast.agent_loop.answer.assembler import Assembler, UsedCallIds
from threadcast.agent_loop.answer.thinking import Thinking, ops_of
from threadcast.agent_loop.calls.hiding import hides
from threadcast.agent_loop.durable.branches import Branch
from threadcast.agent_loop.durable.execution import Execution
from threadcast.agent_loop.durable.plan import error_of
from threadcast.agent_loop.durable.shown_text import ShownText
from threadcast.agent_loop.outcomes import keep_answer, public_calls
from threadcast.base.boundary import name_of, pass_on
from threadcast.chat.agent_steps import record
from threadcast.chat.entry_builder import EntryBuilder
from threadcast.chat.journal import Operation, OperationError, Wait
from threadcast.chat.owner_state import OwnerState
from threadcast.chat.params import effective
from threadcast.chat.runs import close_draft
from threadcast.chat.runtime import say_runtime
from threadcast.custom_agents.agent import pieces_of
from threadcast.custom_agents.errors import StepFailed
from threadcast.custom_agents.pieces import delta_of
from threadcast.custom_agents.seam import Payload, Recorded
from threadcast.profiles.payload_types import summary_of
from threadcast.providers.base import AGENTS, AgentDataDelta, Delta, ToolCallDelta
from threadcast_protocol.wire.events import AgentData, MessageRemoved, PayloadAdded, StreamStarted
from threadcast_protocol.wire.messages import JsonObject, text_of

__all__ = ["KeepValue", "write_answer", "write_message"]

KeepValue: TypeAlias = Callable[[Operation, Any], Awaitable[Operation]]
"""A function that adds a private value to the record of an operation and returns the new record."""

_log = structlog.get_logger()


async def write_answer(execution: Execution, written: Any, args: Sequence[Any], kwargs: JsonObject) -> str:
    """Write an answer and return its text. An answer that is already finished is not written again. Raises StepFailed:
    the function that writes the answer raised an exception."""
    name = "text" if isinstance(written, str) else getattr(written, "__name__", type(written).__name__)
    branch, key, found = await execution.begin("answer", name)
    if found is None or found.status == "begun":
        found = await _Writing(execution, branch, key, found, name).write(written, args, kwargs)
    if found.error is not None:
        raise StepFailed(found.error.kind, found.error.message, found.name)
    message = execution.chat.state.nodes.get(found.ref)
    return text_of(message.content) if message is not None else ""


async def write_message(
    execution: Execution,
    key: str,
    name: str,
    pieces: Callable[[], AsyncIterable[object]],
    extra: JsonObject,
    keep_value: KeepValue,
) -> Operation:
    """Write a message of a framework with its calls and payloads, and return the record of the message. A message that
    is already finished is not written again."""
    async with execution.operation(key) as (branch, found):
        if found is None or found.status == "begun":
            writing = _Writing(execution, branch, key, found, name, extra=extra, keep_value=keep_value)
            found = await writing.write(pieces, (), {})
        return found


class _Writing:
    """The writing of one answer. With `keep_value`, the answer is a message of a framework. Such a message may have
    calls, payloads and a private value, which `keep_value` records. An empty message of a framework is removed."""

    def __init__(
        self,
        execution: Execution,
        branch: Branch,
        key: str,
        found: Operation | None,
        name: str,
        *,
        extra: JsonObject | None = None,
        keep_value: KeepValue | None = None,
    ) -> None:
        self._execution = execution
        self._branch = branch
        self._key = key
        self._begun = found
        self._name = name
        self._extra = {"durable": True, **(extra or {})}
        self._keep_value = keep_value
        self._calls_count = 0
        self._payloads: list[Payload] = []
        self._value: Any = None
        self._shown = ShownText()
        self._assembler = self._new_assembler()
        self._thinking = Thinking({})

    async def write(self, written: Any, args: Sequence[Any], kwargs: JsonObject) -> Operation:
        """Write the answer and return the record of its end."""
        execution = self._execution
        while True:
            await execution.wait_for(self._branch, Wait(key=self._key, on="path"))
            async with execution.path_lock.alone(self._key):
                if not execution.chat.state.runtime.ide_calls:  # another branch may have published calls meanwhile
                    return await self._write(written, args, kwargs)

    async def _write(self, written: Any, args: Sequence[Any], kwargs: JsonObject) -> Operation:
        """Write the answer while the caller prevents other additions to the path."""
        execution = self._execution
        await self._begin()
        draft = execution.chat.state.draft
        text, reasoning = (str(draft.content), str(draft.reasoning)) if draft is not None else ("", "")
        self._thinking = Thinking(draft.message.extra if draft is not None else {})
        if _takes_shown(written):
            kwargs = {**kwargs, "shown": text}
        elif draft is not None:
            self._shown = ShownText(text, reasoning, len(draft.message.citations))
        self._branch.inside = f"the answer {self._name!r}"
        error: OperationError | None = None
        try:
            with execution.effect(self._branch, may_run_twice=True, rests=False):
                stream = _pieces(written, args, kwargs) if self._keep_value is None else _each_of(written)
                async with aclosing(stream) as pieces:
                    async for piece in pieces:
                        await self._take(piece)
            if not self._shown.is_empty:
                await self._begin_anew()
            await self._send_rest()
            if self._keep_value is not None and self._begun is not None:
                self._begun = await self._keep_value(self._begun, self._value)
        except asyncio.CancelledError:
            if self._keep_value is None or execution.is_over:
                raise
            with anyio.CancelScope(shield=True):  # the framework has cancelled its own model call
                cut = OperationError("Cancelled", "the framework has cancelled the message")
                await execution.commit(self._branch, partial(self._end, error=cut))
            raise
        except BaseException as wrong:  # boundary: the operator's code
            pass_on(wrong)
            _log.info("agent.answer_failed", answer=self._name, error=name_of(wrong), exc_info=wrong)
            error = error_of(wrong)
        finally:
            self._branch.inside = ""
        return await execution.commit(self._branch, partial(self._end, error=error))

    async def _begin(self) -> None:
        """Open the message, unless it is still open from before a crash."""
        begun = self._begun
        draft = self._execution.chat.state.draft
        if begun is None or draft is None or draft.message.message_id != begun.ref:
            self._begun = await self._execution.commit(self._branch, self._open)

    def _open(self, builder: EntryBuilder) -> Operation:
        run, path = self._execution.run_open, builder.state.path
        message_id = builder.new_id("msg")
        begun = Operation(kind="answer", name=self._name, status="begun", ref=message_id, at_ms=builder.now_ms)
        record(builder, self._key, begun)
        say_runtime(builder, "generating")
        builder.say(
            StreamStarted(
                message_id=message_id,
                run_id=run.run_id,
                round=max(0, run.round),
                model=f"{AGENTS}{self._execution.durable.name}",
                append=False,
                parent_id=path[-1] if path else None,
                created_at=builder.now_ms,
            )
        )
        return begun

    async def _take(self, piece: object) -> None:
        """Send the part of `piece` that clients do not show yet."""
        if self._keep_value is not None and isinstance(piece, Recorded):
            self._value = piece.value
            return
        if self._keep_value is not None and isinstance(piece, Payload):
            self._payloads.append(piece)
            return
        delta = delta_of(piece, self._execution.durable.name, self._calls_count)
        if isinstance(delta, ToolCallDelta):
            if self._keep_value is None:
                raise TypeError("an answer of a durable agent cannot contain a Call; use ctx.call")
            self._calls_count += 1
        new = self._shown.feed(delta)
        if new is None:
            await self._begin_anew()
            return
        await self._send(*new)
        if not new and not isinstance(delta, AgentDataDelta):
            self._assembler.feed(delta)  # so that the assembler's limits and usage include the shown text

    async def _send(self, *deltas: Delta) -> None:
        for delta in deltas:
            if isinstance(delta, AgentDataDelta):
                message_id = self._begun.ref if self._begun is not None else ""
                await self._execution.stream(self._branch, AgentData(message_id, delta.type, delta.data))
                continue
            for op in ops_of((delta,), self._assembler, self._thinking):
                await self._execution.stream(self._branch, op)

    async def _send_rest(self) -> None:
        """Send how long the agent has thought, if the answer ends with reasoning."""
        for op in ops_of((), self._assembler, self._thinking, is_end=True):
            await self._execution.stream(self._branch, op)

    async def _begin_anew(self) -> None:
        """Remove the shown text, and begin a new message with everything that the agent has written so far."""
        written, shown = self._shown.written, self._begun
        self._shown, self._assembler, self._thinking = ShownText(), self._new_assembler(), Thinking({})

        def begin(builder: EntryBuilder) -> Operation:
            if shown is not None:
                builder.say(MessageRemoved(shown.ref))
            return self._open(builder)

        self._begun = await self._execution.commit(self._branch, begin)
        await self._send(*written)

    def _end(self, builder: EntryBuilder, error: OperationError | None) -> Operation:
        """Finish the message and record the end of the operation."""
        begun = self._begun
        if begun is None:  # impossible: `_begin` has set it
            return Operation(kind="answer", name=self._name)
        if error is not None:
            close_draft(builder, finish_reason="error", status="error", keep=True)
        elif self._is_empty(builder.state):
            builder.say(MessageRemoved(begun.ref))
            begun = replace(begun, ref="")
        else:
            self._keep(builder, begun.ref)
        ended = replace(begun, status="done" if error is None else "failed", error=error)
        record(builder, self._key, ended)
        return ended

    def _is_empty(self, state: OwnerState) -> bool:
        """Return whether the message of a framework is empty for clients."""
        draft = state.draft
        shows = draft is not None and (draft.content or draft.reasoning or draft.message.citations)
        return self._keep_value is not None and not (shows or self._calls_count or self._payloads)

    def _keep(self, builder: EntryBuilder, message_id: str) -> None:
        """Finish the message with its calls and payloads."""
        answer, table = self._assembler.answer(), self._execution.chat.tools()
        keep_answer(
            builder,
            message_id,
            answer,
            f"{AGENTS}{self._execution.durable.name}",
            reason="tool_calls" if answer.calls else "stop",
            calls=public_calls(builder, answer.calls, table),
            extra=self._extra,
        )
        for payload in self._payloads:
            kind = table.profile.payload_types.get(payload.type)
            builder.say(
                PayloadAdded(
                    payload_id=builder.new_id("pl"),
                    payload_type=payload.type,
                    data=payload.data,
                    summary=payload.summary.strip() or summary_of(kind, payload.type, payload.data),
                    source="llm",
                    message_id=message_id,
                    unregistered=kind is None,
                )
            )

    def _new_assembler(self) -> Assembler:
        chat, tools = self._execution.chat, self._execution.chat.tools()
        reasoning = effective(chat.state, "reasoning", tools.profile.params).value
        assembler = Assembler(
            UsedCallIds(chat.state.nodes),
            self._execution.new_call_id,
            reasoning=reasoning,
            hides=partial(hides, tools),
        )
        assembler.provider = AGENTS.rstrip("/")
        return assembler


def _takes_shown(written: Any) -> bool:
    """Return whether `written` is a function with a parameter `shown`, which receives the text that clients already
    show."""
    if not callable(written):
        return False
    try:
        shown = inspect.signature(written).parameters.get("shown")
    except (TypeError, ValueError):
        return False
    return shown is not None and shown.kind in (shown.KEYWORD_ONLY, shown.POSITIONAL_OR_KEYWORD)


async def _pieces(written: Any, args: Sequence[Any], kwargs: JsonObject) -> AsyncGenerator[object]:
    """Yield the pieces of `written`, which is a text, a single piece, or a function that is called with the
    arguments."""
    if not callable(written):
        yield written
        return
    async with aclosing(pieces_of(written, *args, **kwargs)) as pieces:
        async for piece in pieces:
            yield piece


async def _each_of(pieces: Callable[[], AsyncIterable[object]]) -> AsyncGenerator[object]:
    """Yield the pieces of a framework's message, and close their source at the end."""
    source = pieces()
    try:
        async for piece in source:
            yield piece
    finally:
        if isinstance(source, AsyncGenerator):
            await source.aclose()
