"""Questions and answers that are meant to be slow, or to read forbidden data, are refused in bounded time."""

import time

import pytest

from tests.unit.test_questions import is_answer
from threadcast.chat.answer_schemas import SCHEMA_MAX_BYTES, SCHEMA_MAX_DEPTH
from threadcast.chat.questions import OPTIONS_MAX, QUESTION_TEXT_MAX_CHARACTERS, check_question, question_reason
from threadcast_protocol.wire.events import Question
from threadcast_protocol.wire.messages import JsonObject


@pytest.mark.parametrize(
    ("question", "told"),
    [
        (Question(text=" "), "needs a text"),
        (Question(text="a" * (QUESTION_TEXT_MAX_CHARACTERS + 1)), "at most 4000"),
        (Question(text="?", options=["a"], schema={}), "not both"),
        (Question(text="?", options=[str(n) for n in range(OPTIONS_MAX + 1)]), "at most 100"),
        (Question(text="?", options=["a", ""]), "each option"),
        (Question(text="?", options=["a", "a"]), "different"),
        (Question(text="?", schema={"type": "nothing"}), "not valid"),
        (Question(text="?", schema={"title": "a" * SCHEMA_MAX_BYTES}), "bytes"),
        (Question(text="?", schema={"pattern": "(a+)+$"}), "uses pattern"),
        (
            Question(text="?", schema={"properties": {"a": {"patternProperties": {"a": True}}}}),
            "uses patternProperties",
        ),
        (Question(text="?", schema={"anyOf": [{"$ref": "https://example.org/a.json"}]}), "only #/\\$defs/NAME"),
        (Question(text="?", schema={"$ref": "#/x/y", "x": {"y": {"pattern": "a"}}}), "only #/\\$defs/NAME"),
        (Question(text="?", schema={"$defs": {"a": {"$id": "b"}}}), "uses \\$id"),
        (
            Question(text="?", schema={"items": {"$schema": "http://json-schema.org/draft-07/schema#"}}),
            "uses \\$schema",
        ),
    ],
)
def test_what_cannot_be_asked_is_refused_before_a_person_sees_it(question: Question, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        question_reason("c1", "r1", "q1", question)


def test_a_deep_schema_is_refused() -> None:
    schema: JsonObject = {}
    for _ in range(SCHEMA_MAX_DEPTH):
        schema = {"items": schema}
    with pytest.raises(ValueError, match="levels deep"):
        check_question(Question(text="?", schema=schema))


def test_a_property_may_have_the_name_of_a_refused_keyword() -> None:
    question = Question(text="?", schema={"type": "object", "properties": {"pattern": {"type": "string"}}})
    check_question(question)
    assert is_answer(question, {"pattern": "a"})
    assert not is_answer(question, {"pattern": 1})


def test_definitions_and_the_name_of_the_draft_work() -> None:
    draft = "https://json-schema.org/draft/2020-12/schema"
    schema: JsonObject = {"$schema": draft, "$ref": "#/$defs/a", "$defs": {"a": {"type": "integer"}}}
    check_question(Question(text="?", schema=schema))
    assert is_answer(Question(text="?", schema=schema), 3)
    assert not is_answer(Question(text="?", schema=schema), "3")


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        # Each definition checks the next one twenty times: 20 ** 9 keywords.
        (
            {
                "$ref": "#/$defs/d0",
                "$defs": {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 20} for n in range(9)} | {"d9": {}},
            },
            1,
        ),
        ({"$defs": {"a": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}, 1),
        ({"items": {"anyOf": [{"const": n} for n in range(200)]}}, ["a"] * 20_000),
    ],
)
def test_an_answer_that_takes_too_long_to_check_is_refused_soon(schema: JsonObject, value: object) -> None:
    question = Question(text="?", schema=schema)
    check_question(question)
    begun_at = time.process_time()
    assert not is_answer(question, value)
    assert time.process_time() - begun_at < 2


def test_unique_items_are_compared_in_linear_time() -> None:
    question = Question(text="?", schema={"uniqueItems": True})
    check_question(question)
    many = [[n, None] for n in range(5_000)]  # the values cannot be sorted, so the library compares each pair
    begun_at = time.process_time()
    assert is_answer(question, many)
    assert not is_answer(question, [*many, [0, None]])
    assert time.process_time() - begun_at < 2
