"""What an assembler makes of a stream that breaks off."""

import pytest

from server.agent.answer.assembler import Assembler
from server.providers.base import ToolCallDelta


@pytest.mark.parametrize(
    ("arguments", "is_whole"), [("", False), ("  ", False), ('{"a": ', False), ("[1]", False), ("{}", True)]
)
def test_of_a_broken_stream_only_calls_count_whose_arguments_came_whole(arguments: str, is_whole: bool) -> None:
    assembler = Assembler(set(), lambda: "made")
    assembler.feed(ToolCallDelta(index=0, id="call", name="clock", arguments=arguments))
    assert [call.function.name for call in assembler.tool_calls()] == ["clock"]
    assert [call.function.name for call in assembler.answer(is_broken=True).calls] == ["clock"][: int(is_whole)]
