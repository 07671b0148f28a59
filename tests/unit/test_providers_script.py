"""The provider that plays a written script: scenes, rounds, positions, and errors in a file."""

from pathlib import Path

import pytest

from threadcast.providers.base import Delta, Finished, ReasoningDelta, Request, TextDelta, ToolCallDelta
from threadcast.providers.demo.script import Script, read_scenes
from threadcast_protocol.wire.errors import ModelFailed
from threadcast_protocol.wire.messages import Message

pytestmark = pytest.mark.anyio

SCRIPT = """
rate = 0
models = ["small", "large"]

[[scene]]
when = "(?i)weather in (\\\\w+)"
[[scene.round]]
reasoning = "I must look."
text = "I will look."
calls = [{ name = "weather", arguments = { city = "<<1>>", days = [1, "<<user>>"] } }]
[[scene.round]]
text = "In <<1>>: <<result.days.0.sky>>, <<result.none>><<unknown>>."

[[scene]]
when = "hello"
[[scene.round]]
text = "Good day."
"""


@pytest.fixture
def script(tmp_path: Path) -> Script:
    file = tmp_path / "scenes.toml"
    file.write_text(SCRIPT)
    return Script("rehearsal", str(file))


def message(role: str, content: str) -> Message:
    return Message(role=role, content=content, message_id=f"m-{role}", tool_call_id="c" if role == "tool" else None)


async def played(script: Script, *messages: Message, model: str = "small") -> list[Delta]:
    return [delta async for delta in script.stream(Request(model=model, messages=list(messages)))]


def text_in(deltas: list[Delta]) -> str:
    return "".join(delta.text for delta in deltas if isinstance(delta, TextDelta))


async def test_a_scene_is_played_round_by_round_with_its_places_filled(script: Script) -> None:
    asked = message("user", "The weather in Bonn, please")
    first = await played(script, asked)
    assert "".join(d.text for d in first if isinstance(d, ReasoningDelta)) == "I must look."
    assert text_in(first) == "I will look."
    (call,) = [d for d in first if isinstance(d, ToolCallDelta)]
    assert (call.name, call.arguments) == ("weather", '{"city":"Bonn","days":[1,"The weather in Bonn, please"]}')
    assert first[-1] == Finished("tool_calls")
    result = message("tool", '{"days":[{"sky":"clear"}]}')
    second = await played(script, asked, message("assistant", "I will look."), result, model="large")
    assert text_in(second) == "In Bonn: clear, <<unknown>>."
    assert second[-1] == Finished("stop")


async def test_after_its_last_round_and_without_a_scene_it_ends_all_the_same(script: Script) -> None:
    again = await played(script, message("user", "hello"), message("assistant", "Good day."))
    assert text_in(again) == "My script has nothing more for this." and again[-1] == Finished("stop")
    lost = text_in(await played(script, message("user", "what?")))
    assert "nothing for this" in lost and "- hello" in lost
    with pytest.raises(ModelFailed, match="known: small, large"):
        await played(script, message("user", "hello"), model="other")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[[scene]]\nwhen = '('\nround = []", "is no regular expression"),
        ("[[scene]]\nwhen = 'a'\nrounds = []", "rounds"),
        ("scene = 3", "/scene"),
        ("scene = [", "scenes.toml"),
        (None, "No such file"),
    ],
)
def test_a_file_that_is_no_script_is_refused_with_the_place(tmp_path: Path, text: str | None, sentence: str) -> None:
    file = tmp_path / "scenes.toml"
    if text is not None:
        file.write_text(text)
    with pytest.raises(ValueError, match=sentence):
        read_scenes(str(file))


async def test_an_answer_that_is_asked_for_again_is_the_next_round_of_its_scene(script: Script) -> None:
    asked = message("user", "The weather in Bonn, please")
    refused = message("assistant", "Ich sehe nach.")
    again = Message(role="user", content="In English: hello.", message_id="m-guard", kind="guard", hidden=True)
    assert text_in(await played(script, asked, refused, again)) == "In Bonn: , <<unknown>>."


async def test_a_scene_may_look_for_what_the_assistant_was_told(tmp_path: Path) -> None:
    file = tmp_path / "scenes.toml"
    file.write_text(
        """
rate = 0
[[scene]]
when = "show (\\\\w+)"
prompt = "- (pl_\\\\w+)"
[[scene.round]]
text = "<<1>> of <<2>>"

[[scene]]
when = "show"
[[scene.round]]
text = "There is nothing."
"""
    )
    script = Script("rehearsal", str(file))
    asked = [message("user", "show it")]

    async def told(system: str) -> str:
        request = Request(model="script", messages=asked, system=system)
        return text_in([delta async for delta in script.stream(request)])

    assert await told("- pl_1\n- pl_2") == "it of pl_2"  # the newest comes last
    assert await told("") == "There is nothing."
    lost = text_in([d async for d in script.stream(Request(model="script", messages=[message("user", "what?")]))])
    assert lost.endswith("- show (\\w+)\n- show")
    file.write_text("[[scene]]\nwhen = 'a'\nprompt = '('\nround = []\n")
    with pytest.raises(ValueError, match="scene 1: '\\(' is no regular expression"):
        read_scenes(str(file))
