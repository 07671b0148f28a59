"""The pure parts of durable agents: values, the journal's fold, waits, compared text, and the arguments of the
decorator."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import anyio
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from threadcast import AgentContext, Round, agent
from threadcast.agent_loop.durable.calls import CallRunner
from threadcast.agent_loop.durable.execution import Execution
from threadcast.agent_loop.durable.operations import DurableOperations
from threadcast.agent_loop.durable.plan import MISSING_MS, is_over, say_found, say_missing
from threadcast.agent_loop.durable.shown_text import ShownText
from threadcast.agent_loop.history.view import model_view
from threadcast.chat.entry_builder import EntryBuilder
from threadcast.chat.fact_fold import fold_fact
from threadcast.chat.facts import CallAsked, CallDecided, RunStarted
from threadcast.chat.journal import (
    AgentFact,
    AgentMissing,
    AgentParked,
    AgentRestarted,
    AgentStarted,
    DurableRun,
    Operation,
    OperationError,
    OperationRecorded,
    Wait,
)
from threadcast.chat.owner_state import OwnerState, Private, empty_owner_state
from threadcast.chat.runs import open_calls
from threadcast.custom_agents.errors import CallDenied, StepFailed
from threadcast.custom_agents.values import decoded, encoded, return_type
from threadcast.providers.base import Citation, Delta, ReasoningDelta, TextDelta
from threadcast_protocol.wire.events import IdeCall
from threadcast_protocol.wire.messages import FunctionCall, Message, ToolCall
from threadcast_protocol.wire.principal import LOCAL

pytestmark = pytest.mark.row("AGT-2")

TEXTS = st.text(alphabet="ab é", max_size=12)


def started(*facts: AgentFact | CallAsked) -> OwnerState:
    """Return a chat whose open run is carried out by the durable agent "mine"."""
    private = Private()
    first = RunStarted(run_id="r", principal=LOCAL, request_ids=["q"], at_ms=1, first_index=0, model="m")
    for fact in (first, AgentStarted(name="mine", path_length=1, params={"seed": 7}), *facts):
        private = fold_fact(private, fact)
    return replace(empty_owner_state("c"), private=private)


def agent_of(state: OwnerState) -> DurableRun:
    assert state.private.run is not None
    assert state.private.run.agent is not None
    return state.private.run.agent


@dataclass
class Plan:
    query: str
    steps: list[int]


class Page(msgspec.Struct):
    text: str


class Model:
    """The interface of pydantic's models."""

    def __init__(self, name: str) -> None:
        self.name = name

    def model_dump(self, mode: str) -> dict[str, str]:
        assert mode == "json"
        return {"name": self.name}

    @classmethod
    def model_validate(cls, value: dict[str, str]) -> "Model":
        return cls(value["name"])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Model) and other.name == self.name

    __hash__ = None  # type: ignore[assignment]


def plain() -> list[int]:
    raise NotImplementedError


def as_plan() -> Plan:
    raise NotImplementedError


def as_pages() -> list[Page]:
    raise NotImplementedError


def as_model() -> Model:
    raise NotImplementedError


def as_nothing() -> None: ...
def untyped():  # type: ignore[no-untyped-def]
    raise NotImplementedError


@pytest.mark.parametrize(
    ("function", "value"),
    [
        (plain, [1, 2]),
        (as_plan, Plan("tea", [1])),
        (as_pages, [Page("a"), Page("b")]),
        (as_model, Model("x")),
        (as_nothing, None),
        (untyped, {"a": [1, None, "é"]}),
        (lambda: 3, 3),
    ],
)
def test_a_result_comes_back_as_the_type_that_the_function_names(function: Any, value: object) -> None:
    assert decoded(encoded(value), return_type(function)) == value


@given(st.recursive(st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.text(), st.lists, max_leaves=8))
def test_every_json_value_comes_back(value: object) -> None:
    text = encoded(value)
    assert decoded(text, Any) == decoded(encoded(decoded(text, Any)), Any)


def test_a_lone_surrogate_is_replaced_and_other_values_are_refused() -> None:
    assert decoded(encoded(["\ud800"]), Any) == ["\ufffd"]
    with pytest.raises(TypeError):
        encoded(object())


@given(TEXTS, TEXTS, st.lists(TEXTS, max_size=6))
def test_text_that_was_shown_is_never_sent_again_and_other_text_is_noticed(
    shown: str, reasoning: str, pieces: list[str]
) -> None:
    kinds: list[type[TextDelta] | type[ReasoningDelta]] = [TextDelta, ReasoningDelta]
    deltas: list[Delta] = [kinds[number % 2](piece) for number, piece in enumerate(pieces)]
    said = {kind: "".join(each.text for each in deltas if isinstance(each, kind)) for kind in kinds}
    compared, sent = ShownText(shown, reasoning), dict.fromkeys(kinds, "")
    for delta in deltas:
        new = compared.feed(delta)
        if new is None:
            assert compared.written == deltas[: len(compared.written)]
            assert not all(_agree(before, said[kind]) for kind, before in zip(kinds, (shown, reasoning), strict=True))
            return
        for each in new:
            sent[type(each)] += each.text  # type: ignore[index,union-attr]
    for kind, before in zip(kinds, (shown, reasoning), strict=True):
        assert _agree(before, said[kind])
        assert sent[kind] == said[kind][len(before) :]
    assert compared.is_empty == all(
        said[kind].startswith(before) for kind, before in zip(kinds, (shown, reasoning), strict=True)
    )


def _agree(one: str, other: str) -> bool:
    return one.startswith(other) or other.startswith(one)


def test_citations_that_were_shown_are_not_sent_again() -> None:
    compared = ShownText("a", citations=1)
    assert compared.feed(Citation({"url": "1"})) == []
    assert compared.feed(TextDelta("ab")) == [TextDelta("b")]
    assert compared.feed(Citation({"url": "2"})) == [Citation({"url": "2"})]


def test_the_fold_keeps_the_journal_and_changes_no_earlier_state() -> None:
    one = started(OperationRecorded(key="0", operation=Operation(kind="step", name="a", status="begun")))
    two = replace(
        one,
        private=fold_fact(
            one.private,
            OperationRecorded(key="0", operation=Operation(kind="step", name="a", value='"result"')),
        ),
    )
    assert agent_of(one).journal["0"].status == "begun"
    assert agent_of(two).journal["0"].value == '"result"'
    assert agent_of(two).journal_bytes == agent_of(one).journal_bytes + len('"result"')
    assert one.private.run is not None
    assert one.private.run.params == {"seed": 7}, "the parameters of the start hold for the whole run"
    assert one.private.run.round == 0


def test_a_restart_empties_the_journal_and_keeps_its_state() -> None:
    state = started(
        OperationRecorded(key="0", operation=Operation(kind="step", name="a")),
        AgentParked(waits=(Wait(key="1", on="time", until_ms=5),)),
        AgentRestarted(state="[1]"),
    )
    assert (agent_of(state).journal, agent_of(state).waits) == ({}, ())
    assert (agent_of(state).restarts, agent_of(state).state) == (1, "[1]")
    assert agent_of(started(AgentMissing(since_ms=3))).missing_since_ms == 3


def test_facts_of_an_agent_without_a_run_change_nothing() -> None:
    assert fold_fact(Private(), AgentParked()) == Private()


def test_a_wait_is_over_when_what_it_waits_for_has_happened() -> None:
    state = started(CallAsked(tool_call_id="q", input_hash="h"))
    decision = Wait(key="0", on="decision", ref="q")
    assert not is_over(started(), decision, 0), "nobody was asked yet"
    assert not is_over(state, decision, 0)
    decided = fold_fact(state.private, CallDecided(tool_call_id="q", accepted=False))
    assert is_over(replace(state, private=decided), decision, 0)
    sleep = Wait(key="1", on="time", until_ms=1_000)
    assert not is_over(state, sleep, 999)
    assert is_over(state, sleep, 1_000)
    waiting = IdeCall(tool_call_id="c", tool_name="look", args={}, deadline_at=None)
    at_client = replace(state, runtime=replace(state.runtime, ide_calls=[waiting]))
    assert [is_over(at_client, Wait(key="2", on=on, ref="c"), 0) for on in ("client", "path")] == [False, False]
    assert [is_over(state, Wait(key="2", on=on, ref="c"), 0) for on in ("client", "path")] == [True, True]
    assert is_over(state, Wait(key="3", on="child_room"), 0)


def messages_of_two_branches() -> list[Message]:
    def calls(key: str, call_id: str) -> Message:
        call = ToolCall(id=call_id, index=0, function=FunctionCall("f", "{}"))
        return Message(role="assistant", content="", message_id=key, tool_calls=[call])

    def result(key: str, call_id: str) -> Message:
        return Message(role="tool", content=f"of {call_id}", message_id=key, tool_call_id=call_id)

    question = Message(role="user", content="?", message_id="u")
    return [question, calls("a1", "c1"), calls("a2", "c2"), result("t2", "c2"), result("t1", "c1")]


def test_a_model_reads_each_result_directly_behind_its_call() -> None:
    messages = messages_of_two_branches()
    state = started()
    state = replace(
        state,
        nodes={each.message_id: each for each in messages},
        path=tuple(each.message_id for each in messages),
    )
    assert [each.message_id for each in model_view(state, {})] == ["u", "a1", "t1", "a2", "t2"]
    assert [call.id for call in open_calls(replace(state, path=("u", "a1", "a2", "t2")))] == ["c1"]


def test_the_argument_decides_what_an_agent_is() -> None:
    @agent("durable")
    async def durable(ctx: AgentContext) -> None:
        """Does it."""

    @agent("rounds")
    async def rounds(round: Round) -> AsyncIterator[str]:
        yield "x"

    assert (durable.is_durable, rounds.is_durable) == (True, False)


def test_a_durable_agent_must_be_a_plain_async_function() -> None:
    def sync(ctx: AgentContext) -> None: ...

    async def generator(ctx: AgentContext) -> AsyncIterator[str]:
        yield "x"

    def other(ctx: int) -> None: ...

    for function in (sync, generator):
        with pytest.raises(TypeError, match="must be an async function without `yield`"):
            agent("x")(function)
    with pytest.raises(TypeError, match="a Round or an AgentContext, not int"):
        agent("x")(other)


def test_a_ctx_without_a_type_is_refused_instead_of_taken_for_a_round() -> None:
    async def untyped(ctx) -> None: ...  # type: ignore[no-untyped-def] # what the test is about

    with pytest.raises(TypeError, match="agent x: write the type of ctx: `ctx: AgentContext` for a durable function"):
        agent("x")(untyped)


def test_the_result_of_a_function_is_refused_where_the_function_is_wanted() -> None:
    operations = DurableOperations(cast(Execution, None), cast(CallRunner, None))  # refused before these are used
    with pytest.raises(TypeError, match=r"step 'plan': write ctx.step\(name, function, .* not a function but int"):
        anyio.run(partial(operations.step, "plan", cast(Any, 3), (), {}, "once"))
    with pytest.raises(TypeError, match="neither a text nor a function but list"):
        anyio.run(operations.answer, ["text"], (), {})


def test_errors_say_what_happened() -> None:
    assert str(StepFailed("KeyError", "'a'")) == "KeyError: 'a'"
    assert str(StepFailed("KeyError", "")) == "KeyError"
    assert str(CallDenied("too much")) == "the call was denied: too much"
    assert OperationError("KeyError", "x").kind == "KeyError"


@pytest.mark.row("AGT-4")
def test_an_agent_that_no_worker_has_for_a_minute_is_named_until_a_worker_has_it() -> None:
    def at(state: OwnerState, now_ms: int) -> EntryBuilder:
        return EntryBuilder(state, now_ms, lambda kind: f"{kind}_1")

    first = at(started(), 5_000)
    assert say_missing(first) == 5_000
    soon = at(first.state, 5_000 + MISSING_MS - 1)
    assert say_missing(soon) == 5_000
    assert soon.state.runtime.status_text is None
    long = at(soon.state, 5_000 + MISSING_MS)
    assert say_missing(long) == 5_000
    assert long.state.runtime.status_text == "waiting for a worker that has the agent 'mine'"
    again = at(long.state, 5_001 + MISSING_MS)
    say_missing(again)
    assert again.is_empty, "the text is said once"
    found = at(again.state, 6_000 + MISSING_MS)
    say_found(found)
    assert found.state.runtime.status_text is None
    assert say_missing(at(found.state, 9_000_000)) == 9_000_000, "the minute begins anew"
