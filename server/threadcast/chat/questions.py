"""Asks people questions and checks the answers (PROTOCOL §11). A question is a pause reason that a person answers with
a text, an option or a JSON value.

An agent's question can be open while no worker owns the chat; a tool keeps running while its question is open. A
decision that accepts a question has the answer as `edited_input: {"answer": VALUE}`, and the gate with the question's
id keeps the answer. A decision that rejects a question needs no answer, so every client can send such a decision.
"""

from collections.abc import Collection, Sequence

import msgspec
from msgspec import UNSET

from threadcast.chat.answer_schemas import check_schema, problem_of
from threadcast.chat.digests import digest
from threadcast.chat.entry_builder import EntryBuilder
from threadcast.chat.facts import CallAsked
from threadcast_protocol.wire.commands import Decision
from threadcast_protocol.wire.errors import BadRequest
from threadcast_protocol.wire.events import PauseCleared, PauseReason, PauseRequired, Question
from threadcast_protocol.wire.messages import JsonObject

__all__ = [
    "ANSWER_MAX_BYTES",
    "OPTIONS_MAX",
    "OPTION_MAX_CHARACTERS",
    "QUESTION_TEXT_MAX_CHARACTERS",
    "ask_people",
    "check_answer",
    "check_decision",
    "check_question",
    "question_reason",
    "withdraw_questions",
]

QUESTION_TEXT_MAX_CHARACTERS = 4_000
"""The maximum length of a question's text: two pages. Every snapshot contains the question while the question is
open."""

OPTIONS_MAX = 100
"""The maximum number of a question's options."""

OPTION_MAX_CHARACTERS = 500
"""The maximum length of an option, which is the text of a button."""

ANSWER_MAX_BYTES = 65_536
"""The maximum bytes of an answer as JSON, because the answer is part of the chat's state until the round ends."""

SHOWN_COMMAND_MAX_CHARACTERS = 500
"""The maximum length of the text in `command`, which clients that do not support questions show."""

ANSWER_PATH = "/edited_input/answer"


def check_question(question: Question) -> None:
    """Raise ValueError if `question` cannot be asked. It must have a text, its parts must not be too long, and its
    options must be different. It may have options or a schema, but not both, and `check_schema` must accept the
    schema."""
    if not question.text.strip():
        raise ValueError("a question needs a text")
    if len(question.text) > QUESTION_TEXT_MAX_CHARACTERS:
        raise ValueError(f"the text of a question has at most {QUESTION_TEXT_MAX_CHARACTERS} characters")
    if question.options and question.schema is not None:
        raise ValueError("a question has options or a schema, not both")
    if len(question.options) > OPTIONS_MAX:
        raise ValueError(f"a question has at most {OPTIONS_MAX} options")
    if any(not option.strip() or len(option) > OPTION_MAX_CHARACTERS for option in question.options):
        raise ValueError(f"each option is a text of 1 to {OPTION_MAX_CHARACTERS} characters")
    if len(set(question.options)) < len(question.options):
        raise ValueError("the options of a question are different from each other")
    if question.schema is not None:
        check_schema(question.schema)


def question_reason(
    chat_id: str, run_id: str, question_id: str, question: Question, *, tool_name: str = ""
) -> PauseReason:
    """Return the pause reason that asks `question`. `tool_name` is the tool that asks, '' for an agent. Raises
    ValueError if `check_question` refuses the question."""
    check_question(question)
    return PauseReason(
        type="question",
        tool_name=tool_name,
        tool_call_id=question_id,
        command=question.text[:SHOWN_COMMAND_MAX_CHARACTERS],
        rule=f"the tool {tool_name} asks" if tool_name else "",
        input_hash=digest([chat_id, run_id, question_id, msgspec.to_builtins(question)]),
        question=question,
    )


def ask_people(builder: EntryBuilder, reasons: Sequence[PauseReason]) -> None:
    """Add the event that lists the questions in `reasons` together with the chat's other open pause reasons. The caller
    sets the run's state."""
    for reason in reasons:
        builder.note(CallAsked(tool_call_id=reason.tool_call_id, input_hash=reason.input_hash, is_question=True))
    asked = {reason.tool_call_id for reason in reasons}
    others = [each for each in builder.state.runtime.pause_reasons if each.tool_call_id not in asked]
    builder.say(PauseRequired([*others, *reasons]))


def withdraw_questions(builder: EntryBuilder, question_ids: Collection[str]) -> None:
    """Remove these questions, which no longer need an answer. Adds no event if none of these questions is open."""
    before = builder.state.runtime.pause_reasons
    left = [each for each in before if each.type != "question" or each.tool_call_id not in question_ids]
    if len(left) < len(before):
        builder.say(PauseRequired(left) if left else PauseCleared())


def check_answer(question: Question, value: object) -> None:
    """Raise BadRequest if `value` is too large or is not a valid answer to `question`. A valid answer fits the
    question's schema, or is one of the question's options, or is a text if the question has neither."""
    if len(msgspec.json.encode(value)) > ANSWER_MAX_BYTES:
        raise BadRequest(f"an answer has at most {ANSWER_MAX_BYTES} bytes of JSON", path=ANSWER_PATH)
    problem = ""
    if question.schema is not None:
        problem = problem_of(question.schema, value)
    elif question.options and value not in question.options:
        listed = msgspec.json.encode(question.options[:10]).decode()
        problem = f"the answer is one of {listed}" + (", …" if len(question.options) > 10 else "")
    elif not isinstance(value, str):
        problem = "the answer is a text"
    if problem:
        raise BadRequest(problem, path=ANSWER_PATH)


def check_decision(reason: PauseReason, decision: Decision) -> None:
    """Raise BadRequest if `decision` accepts the question `reason` without a valid answer."""
    if not decision.accepted:
        return
    answer: JsonObject = decision.edited_input or {}
    if answer.keys() != {"answer"}:
        raise BadRequest('answer the question with edited_input {"answer": …}, or reject it', path="/edited_input")
    if reason.question is not UNSET:
        check_answer(reason.question, answer["answer"])
