"""Measures the replay of a durable agent's journal in this process, for `bench.agents`: the real execution runs on a
folded state, without a store."""

import asyncio
import itertools
import time
from collections.abc import Callable
from typing import Any, TypeVar

from bench import agents_app
from threadcast.agent_loop.durable.execution import Execution
from threadcast.agent_loop.durable.inputs import inputs_of
from threadcast.agent_loop.durable.operations import DurableOperations
from threadcast.chat.agent_steps import record
from threadcast.chat.entry_builder import EntryBuilder
from threadcast.chat.facts import RunStarted
from threadcast.chat.journal import AgentStarted, Operation
from threadcast.chat.owner_state import OwnerState, empty_owner_state
from threadcast.custom_agents.context import AgentContext
from threadcast.profiles.profile import ChatTools, Profile
from threadcast_protocol.wire.messages import Message
from threadcast_protocol.wire.principal import LOCAL

__all__ = ["replays"]

_T = TypeVar("_T")


class _Chat:
    """A `ChatPort` without a store, with a run of the agent `questions` whose journal has recorded steps."""

    def __init__(self, operations_count: int) -> None:
        self._numbers = itertools.count()
        self._profile = Profile(name="questions", params={"model": "agents/questions", "durable": True})
        self.state: OwnerState = empty_owner_state("replay")
        self._never = asyncio.Event()
        builder = self._builder()
        builder.add_message(Message(role="user", content=str(operations_count), message_id="question", created_at=1))
        builder.note(RunStarted(run_id="run", principal=LOCAL, request_ids=["a"], at_ms=1, first_index=1))
        builder.note(AgentStarted(name="questions", path_length=1))
        for number in range(operations_count):
            record(builder, str(number), Operation(kind="step", name="seven", value="7", at_ms=1, retry="safe"))
        self.state = builder.state

    def _builder(self) -> EntryBuilder:
        return EntryBuilder(self.state, self.now_ms(), lambda prefix: f"{prefix}_{next(self._numbers)}")

    async def commit(self, write: Callable[[EntryBuilder], _T]) -> _T:
        builder = self._builder()
        result = write(builder)
        self.state = builder.state
        return result

    async def changed(self) -> None:
        await self._never.wait()

    def now_ms(self) -> int:
        return int(time.time() * 1_000)

    def tools(self) -> ChatTools:
        return ChatTools(self._profile, {}, frozenset(), "demo/echo")


async def replays(operations_count: int, repetitions: int) -> list[float]:
    """Return the milliseconds of CPU time from the start of the function until the function is ended at its
    question."""
    chat: Any = _Chat(operations_count)  # Any: has the part of a ChatPort that steps and questions use
    await _replay(chat)  # asks the question, and warms up
    found: list[float] = []
    for _ in range(repetitions):
        began = time.process_time()
        await _replay(chat)
        found.append((time.process_time() - began) * 1_000)
        assert len(chat.state.private.run.agent.journal) == operations_count + 1
    return found


async def _replay(chat: Any) -> None:
    execution = Execution(chat, agents_app.questions, 600, lambda: "call")
    inputs = inputs_of(chat.state, chat.tools())
    await execution.run(AgentContext(inputs, DurableOperations(execution, _no_call)))
    assert chat.state.private.run.agent.waits


async def _no_call(_step: object) -> None:
    raise AssertionError("the agent calls no tool")
