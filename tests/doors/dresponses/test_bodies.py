"""The input of a response, read without a server: histories, histories that end with an answer, and limits."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from threadcast.compat.foreign_ids import call_id_of
from threadcast.compat.responses.bodies import INPUT_MAX_ITEMS, read_input, read_response
from threadcast_protocol.wire.errors import BadRequest

CHAT = "conv_1"
STEPS = st.lists(st.sampled_from(["user", "assistant", "call"]), max_size=6)


def items_of(steps: list[str], *, named: bool) -> list[Any]:
    """Return the items that a client holds after these steps; a call is followed by its result."""
    items: list[Any] = []
    for number, step in enumerate(steps):
        if step != "call":
            items.append({"type": "message", "role": step, "content": f"text {number}"})
            continue
        call_id = call_id_of(CHAT, f"call_{number}") if named else f"call_{number}"
        items.append({"type": "reasoning", "summary": []})
        items.append({"type": "function_call", "call_id": call_id, "name": "f", "arguments": "{}"})
        items.append({"type": "function_call_output", "call_id": call_id, "output": f"result {number}"})
    return items


@given(STEPS, st.booleans())
def test_results_at_the_end_are_answers_and_others_are_history(steps: list[str], named: bool) -> None:
    given_input = read_input(items_of(steps, named=named))
    last_message = max((at for at, step in enumerate(steps) if step != "call"), default=-1)
    ends = [(f"call_{at}", f"result {at}") for at, step in enumerate(steps) if step == "call" and at > last_message]
    assert given_input.answers.results == ends
    assert given_input.answers.chat_id == (CHAT if named and ends else "")
    asked = [call["id"] for message in given_input.history for call in message.get("tool_calls", [])]
    answered = [message["tool_call_id"] for message in given_input.history if message["role"] == "tool"]
    assert asked == answered == [f"call_{at}" for at, step in enumerate(steps) if step == "call"]
    said = [each["content"] for each in given_input.history if each["role"] == "assistant"]
    assert "".join(said) == "".join(f"text {at}" for at, step in enumerate(steps) if step == "assistant")


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"input": [{"role": "user", "content": "x"}] * (INPUT_MAX_ITEMS + 1)}, "/input"),
    ({"input": [{"type": "function_call", "call_id": "c", "name": "f"}]}, "/input/0/arguments"),
    ({"input": [{"type": "function_call_output", "output": "x"}]}, "/input/0/call_id"),
    ({"input": [{"role": "robot", "content": "x"}]}, "/input/0/role"),
    ({"input": "x", "metadata": {str(n): "x" for n in range(17)}}, "/metadata"),
    ({"input": "x", "metadata": {"k": "x" * 513}}, "/metadata"),
    ({"input": "x", "tool_choice": "required"}, "/tool_choice"),
    ({"input": "x", "tool_choice": {"type": "function", "name": "f"}}, "/tool_choice"),
]


@pytest.mark.parametrize(("body", "path"), WRONG, ids=[path + str(at) for at, (_, path) in enumerate(WRONG)])
def test_what_cannot_be_done_is_refused_with_its_place(body: dict[str, Any], path: str) -> None:
    with pytest.raises(BadRequest) as refused:
        read_input(read_response(json.dumps(body).encode()).input)
    assert refused.value.path == path


KEYS = st.sampled_from(["type", "role", "content", "call_id", "output", "name"])
VALUES = st.none() | st.text(max_size=3) | st.lists(st.integers(), max_size=2)


@given(st.lists(st.dictionaries(KEYS, VALUES), max_size=3))
def test_any_other_input_is_a_bad_request_or_read(items: list[Any]) -> None:
    try:
        read_input(items)
    except BadRequest as refused:
        assert refused.path is not None and refused.path.startswith("/input")
