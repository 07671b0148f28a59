"""Calls of safe tools run at the same time; their results are stored in the order of the calls, even if the calls end
in another order (LOOP-3)."""

import pytest

from tests.unit.actor_harness import CHAT, GatedTool, Harness, abort, say, turns
from tests.unit.fake_tools import FakeTool
from tests.unit.pure_chat import PureChat, table
from tests.unit.pure_chat import say as words
from threadcast.actor.end import End
from threadcast.agent_loop.calls.gates import TOOLS_AT_ONCE
from threadcast.agent_loop.steps import CallModel, RunTool
from threadcast.store.memory.store import MemoryStore
from threadcast.tools.context import Progress
from threadcast_protocol.wire.commands import Abort
from threadcast_protocol.wire.events import ToolStatus
from threadcast_protocol.wire.messages import FunctionCall, ToolCall

TOOLS = {
    "read": FakeTool(name="read", retry="safe"),
    "look": FakeTool(name="look", retry="safe"),
    "write": FakeTool(name="write", retry="idempotent"),
    "asks": FakeTool(name="asks", retry="safe", policy="ask"),
}


def asked(*names: str) -> PureChat:
    """Return a chat whose model has just asked for these tools; their calls are c0, c1, …"""
    chat = PureChat(table(TOOLS), words("a"))
    chat.asks(*[ToolCall(f"c{n}", n, FunctionCall(name, "{}")) for n, name in enumerate(names)])
    return chat


def running(chat: PureChat) -> list[str]:
    assert isinstance(chat.step, RunTool)
    return [step.call.id for step in (chat.step, *chat.step.beside)]


def answers(chat: PureChat) -> list[tuple[str | None, str]]:
    path = [chat.state.nodes[key] for key in chat.state.path]
    return [(m.tool_call_id, str(m.content)) for m in path if m.role == "tool"]


@pytest.mark.row("LOOP-3")
def test_safe_calls_that_follow_each_other_run_at_once_and_any_other_runs_alone() -> None:
    chat = asked("read", "look", "write", "read")
    assert running(chat) == ["c0", "c1"]
    begun = [(e.tool_call_id, e.index) for e in chat.events if isinstance(e, ToolStatus) and e.status == "running"]
    assert begun == [("c0", 0), ("c1", 1)]
    chat.tool_answers("one")
    assert running(chat) == ["c1"], "nothing else begins before all of them have ended"
    chat.tool_answers("two")
    assert running(chat) == ["c2"]
    chat.tool_answers("three")
    assert running(chat) == ["c3"]
    chat.tool_answers("four")
    assert answers(chat) == [("c0", "one"), ("c1", "two"), ("c2", "three"), ("c3", "four")]
    ended = [(e.tool_call_id, e.index) for e in chat.events if isinstance(e, ToolStatus) and e.status == "done"]
    assert ended == [("c0", 0), ("c1", 1), ("c2", 2), ("c3", 3)]


def test_at_most_so_many_run_at_once() -> None:
    chat = asked(*["read"] * (TOOLS_AT_ONCE + 2))
    assert len(running(chat)) == TOOLS_AT_ONCE
    for _ in range(TOOLS_AT_ONCE):
        chat.tool_answers()
    assert len(running(chat)) == 2


def test_none_runs_while_a_person_is_asked_about_one_of_them() -> None:
    chat = asked("read", "asks", "look")
    assert chat.is_waiting
    assert chat.state.runtime.paused


def test_after_a_crash_those_without_a_result_run_again_together() -> None:
    chat = asked("read", "look", "read")
    chat.tool_answers("one")
    chat.crash()
    assert running(chat) == ["c1", "c2"]
    chat.tool_answers("two")
    chat.tool_answers("three")
    assert [content for _, content in answers(chat)] == ["one", "two", "three"]


def test_an_abort_answers_all_that_run() -> None:
    chat = asked("read", "look", "write")
    chat.command(Abort(client_request_id="stop"))
    assert [call_id for call_id, _ in answers(chat)] == ["c0", "c1", "c2"]
    assert chat.state.runtime.outcome == "aborted"
    assert chat.state.runtime.tools == []


@pytest.mark.row("LOOP-13", "CMD-17")
def test_a_message_that_steers_lets_those_that_run_finish_and_answers_the_rest_unrun() -> None:
    chat = asked("read", "look", "write")
    chat.command(words("b", "stop that", priority=True))
    chat.tool_answers("one")
    assert running(chat) == ["c1"]
    chat.tool_answers("two")
    assert answers(chat)[2] == ("c2", "Interrupted by a new message before it was run.")
    assert isinstance(chat.step, CallModel)
    assert chat.state.nodes[chat.state.path[-2]].content == "stop that"
    assert chat.types().count("stream_started") == 2, "the old run asks no model any more"


class _Named(GatedTool):
    def __init__(self, name: str) -> None:
        super().__init__(retry="safe")
        self.name = name


@pytest.mark.anyio
async def test_a_result_that_comes_early_waits_for_those_before_it() -> None:
    first, second = _Named("first"), _Named("second")
    harness = Harness(first, second, model="demo/tools?rate=0")
    await harness.post(say("call first {}\ncall second {}", "a"))
    async with harness.owning("w1") as owner:
        await first.entered()
        await second.entered()
        second.go_on.set()
        await turns()
        assert "done" not in await harness.tool_statuses()
        first.report(Progress(message="on my way"))
        first.go_on.set()
        assert await owner.over() is End.RELEASED
    statuses = [(e.name, e.status) for e in await harness.events() if isinstance(e, ToolStatus)]
    assert statuses == [
        ("first", "running"),
        ("second", "running"),
        ("first", "progress"),
        ("first", "done"),
        ("second", "done"),
    ]


@pytest.mark.anyio
async def test_an_abort_cancels_all_that_run() -> None:
    first, second = _Named("first"), _Named("second")
    harness = Harness(first, second, model="demo/tools?rate=0")
    await harness.post(say("call first {}\ncall second {}", "a"))
    async with harness.owning("w1") as owner:
        await first.entered()
        await second.entered()
        await harness.post(abort())
        owner.actor.notify()
        assert await owner.over() is End.RELEASED
    assert (first.cancelled, second.cancelled) == (1, 1)
    assert (await harness.tool_statuses())[-2:] == ["aborted", "aborted"]


@pytest.mark.anyio
async def test_a_store_that_is_somebody_elses_ends_all_that_run() -> None:
    first, second = _Named("first"), _Named("second")
    harness = Harness(first, second, model="demo/tools?rate=0")
    await harness.post(say("call first {}\ncall second {}", "a"))
    async with harness.owning("w1") as owner:
        await first.entered()
        await second.entered()
        await MemoryStore.take(harness.store, CHAT, "w1", "wake")
        first.go_on.set()
        await second.entered(2)  # the fenced owner takes the chat again and runs the calls that have no result
        second.go_on.set()
        assert await owner.over() is End.RELEASED
    assert second.cancelled == 1
    assert (await harness.state()).runtime.outcome == "complete"
