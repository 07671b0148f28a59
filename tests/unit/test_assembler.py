"""The assembler handles streams that break off and streams that never end."""

import pytest

from threadcast.agent_loop.answer.assembler import ANSWER_MAX_CHARACTERS, CALLS_MAX_COUNT, Assembler, UsedCallIds
from threadcast.providers.base import Delta, ReasoningDelta, TextDelta, ToolCallDelta
from threadcast_protocol.wire.errors import ModelFailed
from threadcast_protocol.wire.messages import FunctionCall, Message, ToolCall


@pytest.mark.parametrize(
    ("arguments", "is_whole"), [("", False), ("  ", False), ('{"a": ', False), ("[1]", False), ("{}", True)]
)
def test_of_a_broken_stream_only_calls_count_whose_arguments_came_whole(arguments: str, is_whole: bool) -> None:
    assembler = Assembler(set(), lambda: "made")
    assembler.feed(ToolCallDelta(index=0, id="call", name="clock", arguments=arguments))
    assert [call.function.name for call in assembler.tool_calls()] == ["clock"]
    assert [call.function.name for call in assembler.answer(is_broken=True).calls] == ["clock"][: int(is_whole)]


@pytest.mark.parametrize("delta", [TextDelta("x" * 1_000), ReasoningDelta("x" * 1_000)])
def test_an_answer_may_be_so_long_and_no_longer(delta: Delta) -> None:
    assembler = Assembler(set(), lambda: "made", reasoning="off")
    for _ in range(ANSWER_MAX_CHARACTERS // 1_000):
        assembler.feed(delta)
    with pytest.raises(ModelFailed, match=f"more than {ANSWER_MAX_CHARACTERS} characters"):
        assembler.feed(TextDelta("x"))


def test_an_answer_may_ask_for_so_many_calls_and_no_more() -> None:
    assembler = Assembler(set(), lambda: "made")
    for index in range(CALLS_MAX_COUNT):
        assembler.feed(ToolCallDelta(index=index, id=f"call{index}", name="clock", arguments="{}"))
    with pytest.raises(ModelFailed, match=f"more than {CALLS_MAX_COUNT} calls"):
        assembler.feed(ToolCallDelta(index=CALLS_MAX_COUNT, id="more", name="clock", arguments="{}"))


def test_the_used_call_ids_are_those_of_all_messages() -> None:
    asks = Message(
        role="assistant", content="", message_id="m", tool_calls=[ToolCall("c1", 0, FunctionCall("f", "{}"))]
    )
    used = UsedCallIds({"m": asks})
    assert "c1" in used and "c2" not in used
    assembler = Assembler(used, lambda: "made")
    for call_id in ("c1", "c2"):
        assembler.feed(ToolCallDelta(int(call_id == "c2"), call_id, "f", "{}"))
    assert [call.id for call in assembler.answer().calls] == ["made", "c2"]
