"""Questions to people: which are valid, which answers fit, and how a decision answers a question (PROTOCOL §11)."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.unit.fake_tools import FakeTool
from tests.unit.pure_chat import PureChat, acks, call, say, table
from threadcast.agent_loop.steps import CallModel, RunTool
from threadcast.chat.approval_rules import ApprovalRules
from threadcast.chat.entry_builder import EntryBuilder
from threadcast.chat.questions import (
    ANSWER_MAX_BYTES,
    ask_people,
    check_answer,
    check_question,
    question_reason,
    withdraw_questions,
)
from threadcast.chat.runtime import say_runtime
from threadcast_protocol.wire.commands import Abort, Decision, SetParams, ToolDecision, ToolDecisions
from threadcast_protocol.wire.errors import BadRequest
from threadcast_protocol.wire.events import PauseCleared, PauseReason, PauseRequired, Question
from threadcast_protocol.wire.messages import JsonObject
from threadcast_protocol.wire.principal import Principal

FREE = Question(text="Which style?")
CHOICE = Question(text="Which one?", options=["short", "long"])
FORM: JsonObject = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 5}, "age": {"type": "integer", "minimum": 0}},
    "required": ["name"],
    "additionalProperties": False,
}
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)


def is_answer(question: Question, value: object) -> bool:
    try:
        check_answer(question, value)
    except BadRequest as refused:
        assert refused.path == "/edited_input/answer"
        assert refused.message
        return False
    return True


@given(JSON)
def test_a_free_question_takes_any_text_and_nothing_else(value: object) -> None:
    assert is_answer(FREE, value) == isinstance(value, str)


@given(st.lists(st.text(min_size=1).filter(str.strip), min_size=1, max_size=9, unique=True), JSON, st.data())
def test_a_choice_takes_exactly_its_options(options: list[str], value: object, data: st.DataObject) -> None:
    question = Question(text="?", options=options)
    check_question(question)
    assert is_answer(question, data.draw(st.sampled_from(options)))
    assert is_answer(question, value) == (value in options)


@given(st.fixed_dictionaries({"name": st.text(max_size=5)}, optional={"age": st.integers(0, 2**53)}))
def test_a_form_takes_what_fits_its_schema(value: JsonObject) -> None:
    assert is_answer(Question(text="?", schema=FORM), value)
    assert not is_answer(Question(text="?", schema=FORM), {**value, "more": 1})
    assert not is_answer(Question(text="?", schema=FORM), {**value, "age": -1})
    assert not is_answer(Question(text="?", schema=FORM), value["name"])


def test_the_refusal_says_what_is_allowed() -> None:
    for question, value, told in (
        (CHOICE, "middle", 'the answer is one of ["short","long"]'),
        (FREE, 3, "the answer is a text"),
        (Question(text="?", schema=FORM), {"name": "ann", "age": -1}, "-1 is less than the minimum of 0 (at /age)"),
        (Question(text="?", schema=FORM), {}, "'name' is a required property"),
    ):
        with pytest.raises(BadRequest, match=re.escape(told)):
            check_answer(question, value)


def test_an_answer_is_bounded() -> None:
    assert is_answer(FREE, "a" * (ANSWER_MAX_BYTES - 2))
    assert not is_answer(FREE, "a" * (ANSWER_MAX_BYTES - 1))


def test_the_hash_binds_chat_run_id_and_question() -> None:
    reason = question_reason("c1", "r1", "q1", CHOICE)
    assert (reason.type, reason.tool_call_id, reason.tool_name) == ("question", "q1", "")
    assert (reason.command, reason.input, reason.question) == ("Which one?", {}, CHOICE)
    others = [
        question_reason("c2", "r1", "q1", CHOICE),
        question_reason("c1", "r2", "q1", CHOICE),
        question_reason("c1", "r1", "q2", CHOICE),
        question_reason("c1", "r1", "q1", replace(CHOICE, options=["short", "long", "none"])),
    ]
    assert len({reason.input_hash, *(other.input_hash for other in others)}) == 5


# Decisions.


def asking(*questions: Question, state: str = "paused", tool: str = "") -> PureChat:
    """Return a chat whose open run asks these questions as q0, q1, …; its state is `state`."""
    chat = PureChat(table({"clock": FakeTool(name="clock")}), say("a"))
    chat.asks(call("c0", "clock"))

    def ask(builder: EntryBuilder) -> None:
        run = builder.state.private.run
        assert run is not None
        reasons = [
            question_reason("c1", run.run_id, f"q{number}", question, tool_name=tool)
            for number, question in enumerate(questions)
        ]
        ask_people(builder, reasons)
        say_runtime(builder, state)

    chat.write(ask)
    return chat


def decision(question_id: str = "q0", *, accepted: bool = True, answer: object = None, **more: object) -> ToolDecision:
    if answer is not None:
        more["edited_input"] = {"answer": answer}
    return ToolDecision(client_request_id="d", tool_call_id=question_id, accepted=accepted, **more)  # type: ignore[arg-type]  # fields of a decision


def refusal(chat: PureChat, command: ToolDecision | ToolDecisions, by: Principal | None = None) -> str:
    before = chat.state.runtime.pause_reasons
    events = chat.command(command, by=by) if by is not None else chat.command(command)
    ((_, accepted, result),) = acks(events)
    assert not accepted
    assert chat.state.runtime.pause_reasons == before
    return str(result["code"]) + ": " + str(result["error"])


def answer_of(chat: PureChat, question_id: str = "q0") -> tuple[str, JsonObject | None]:
    run = chat.state.private.run
    assert run is not None
    gate = run.gates[question_id]
    return gate.status, gate.edited_input


def test_an_answer_ends_the_pause_and_is_kept_with_the_run() -> None:
    chat = asking(CHOICE)
    events = chat.command(decision(answer="long"))
    assert any(isinstance(event, PauseCleared) for event in events)
    assert answer_of(chat) == ("accepted", {"answer": "long"})
    assert chat.state.runtime.state == "executing_tools"
    assert chat.state == chat._folded()


def test_a_rejection_needs_nothing_and_the_run_goes_on() -> None:
    chat = asking(CHOICE)
    chat.command(decision(accepted=False))
    assert answer_of(chat) == ("rejected", None)
    assert isinstance(chat.step, RunTool)


def test_a_rejected_question_is_no_denied_call() -> None:
    """`on_deny: stop` ends a run after a denied call."""
    chat = asking(CHOICE)
    chat.command(SetParams(client_request_id="p", patch={"on_deny": "stop"}))
    chat.command(decision(accepted=False))
    chat.tool_answers()
    assert isinstance(chat.step, CallModel)


@pytest.mark.parametrize("edited", [None, {}, {"answer": "long", "more": 1}, {"text": "long"}])
def test_a_plain_approval_is_no_answer(edited: JsonObject | None) -> None:
    told = refusal(asking(CHOICE), decision(edited_input=edited))
    assert told.startswith('bad_request: answer the question with edited_input {"answer": …}')


def test_an_answer_that_does_not_fit_is_refused_and_the_question_stays() -> None:
    assert refusal(asking(CHOICE), decision(answer="middle")).startswith("bad_request: the answer is one of")


def test_an_answer_to_another_question_is_refused() -> None:
    assert refusal(asking(CHOICE), decision(answer="long", input_hash="0" * 32)).startswith("conflict")


def test_an_answer_is_no_permission_for_the_tool_that_asks() -> None:
    chat = asking(CHOICE, tool="clock")
    chat.command(decision(answer="long", remember="tool"))
    assert answer_of(chat)[0] == "accepted"
    assert not chat.state.private.allowed_tools


def test_whoever_may_write_may_answer_but_not_approve() -> None:
    guest = Principal("guest", permissions=())
    chat = asking(CHOICE, FREE)
    chat.command(decision(answer="long"), by=guest)
    assert answer_of(chat) == ("accepted", {"answer": "long"})
    mixed = PauseReason(type="confirmation", tool_name="mail", tool_call_id="c9")
    chat.write(lambda builder: builder.say(PauseRequired([*builder.state.runtime.pause_reasons, mixed])))
    both = [Decision(tool_call_id="q1", accepted=False), Decision(tool_call_id="c9", accepted=False)]
    assert refusal(chat, ToolDecisions(client_request_id="d2", decisions=both), guest).startswith("forbidden")


def test_several_questions_are_answered_one_by_one() -> None:
    chat = asking(CHOICE, FREE)
    (event, _) = chat.command(decision(answer="long"))
    assert isinstance(event, PauseRequired)
    assert [reason.tool_call_id for reason in event.reasons] == ["q1"]
    assert chat.state.runtime.state == "paused"
    chat.command(ToolDecision(client_request_id="d2", tool_call_id="q1", accepted=True, edited_input={"answer": "x"}))
    assert answer_of(chat, "q1") == ("accepted", {"answer": "x"})


def test_while_a_task_works_the_decision_leaves_the_state_to_it() -> None:
    chat = asking(CHOICE, state="executing_tools")
    step = chat.step
    events = chat.command(decision(answer="long"))
    assert [type(event).__name__ for event in events] == ["PauseCleared", "Ack"]
    assert answer_of(chat)[0] == "accepted"
    assert chat.step is step


def test_a_question_is_withdrawn_alone() -> None:
    chat = asking(CHOICE, FREE, state="executing_tools")
    (event,) = chat.write(lambda builder: withdraw_questions(builder, ["q0"]))
    assert isinstance(event, PauseRequired)
    assert [reason.tool_call_id for reason in event.reasons] == ["q1"]
    assert chat.write(lambda builder: withdraw_questions(builder, ["q0"])) == []
    (event,) = chat.write(lambda builder: withdraw_questions(builder, ["q1"]))
    assert isinstance(event, PauseCleared)


def test_a_question_of_a_call_that_has_ended_does_not_hold_the_run_up() -> None:
    chat = asking(CHOICE, state="executing_tools", tool="clock")
    chat.tool_answers()
    assert chat.state.runtime.pause_reasons == []
    assert isinstance(chat.step, CallModel)


def test_an_abort_clears_the_questions() -> None:
    chat = asking(CHOICE, state="executing_tools")
    chat.command(Abort(client_request_id="x"))
    assert chat.state.runtime.pause_reasons == []
    assert chat.state.is_at_rest


def test_with_the_rule_an_answer_needs_the_hash_of_the_question() -> None:
    chat = asking(CHOICE)
    chat.tools.rules = ApprovalRules(requires_input_hash=True)
    assert refusal(chat, decision(answer="long")).startswith("bad_request")
    (reason,) = chat.state.runtime.pause_reasons
    chat.command(
        ToolDecision(
            client_request_id="e",
            tool_call_id="q0",
            accepted=True,
            edited_input={"answer": "long"},
            input_hash=reason.input_hash,
        )
    )
    assert answer_of(chat)[0] == "accepted"
