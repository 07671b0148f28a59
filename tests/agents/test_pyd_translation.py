"""The translation between pydantic-ai and the chat: responses, history, values of tools, and settings."""

import base64
import subprocess
import sys
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pydantic import BaseModel
from pydantic_ai import Agent, RunContext, Tool, ToolReturn
from pydantic_ai.exceptions import ToolFailed
from pydantic_ai.messages import (
    BinaryContent,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    NativeToolCallPart,
    NativeToolReturnPart,
    PartDeltaEvent,
    PartStartEvent,
    SystemPromptPart,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ThinkingPartDelta,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.models.test import TestModel
from pydantic_ai.output import OutputObjectDefinition
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.toolsets import FunctionToolset
from pydantic_ai.usage import RequestUsage, RunUsage

from threadcast.agents.pydantic_ai import serve
from threadcast.agents.pydantic_ai.history import NOT_CARRIED_OUT, OUTPUT_TAKEN, history_of, keep_of
from threadcast.agents.pydantic_ai.models import Messages
from threadcast.agents.pydantic_ai.responses import ResponseReader, arguments_of, decoded, encoded, native_results
from threadcast.agents.pydantic_ai.serving import settings_of
from threadcast.agents.pydantic_ai.tools import RecordedToolset, Settings, _decoded, _encoded
from threadcast.custom_agents.pieces import KEEP_MAX_BYTES, Call, Reasoning, Usage
from threadcast.custom_agents.rounds import RoundMessage
from threadcast.custom_agents.seam import Seam
from threadcast.tools.base import Payload
from threadcast_protocol.wire import messages as wire

pytestmark = pytest.mark.row("AGT-6")

PLAIN = ModelRequestParameters()
PICTURE = BinaryContent.narrow_type(BinaryContent(b"\x00\xff", media_type="image/png"))


def message(role: str, content: Any = "", **fields: Any) -> RoundMessage:
    return RoundMessage(role=role, content=content, message_id="m", **fields)


def called(call_id: str, name: str, arguments: str = "{}") -> wire.ToolCall:
    return wire.ToolCall(id=call_id, index=0, function=wire.FunctionCall(name, arguments))


def test_parts_of_one_kind_are_divided_by_an_empty_line() -> None:
    reader = ResponseReader(PLAIN, "")
    events = [
        PartStartEvent(index=0, part=ThinkingPart("a")),
        PartDeltaEvent(index=0, delta=ThinkingPartDelta(content_delta="b")),
        PartStartEvent(index=1, part=TextPart("")),
        PartDeltaEvent(index=1, delta=TextPartDelta("one")),
        PartStartEvent(index=2, part=TextPart("two")),
        PartStartEvent(index=3, part=ThinkingPart("c")),
        PartStartEvent(index=4, part=ToolCallPart("t", "{}")),
    ]
    assert [reader.read(event) for event in events] == [
        Reasoning("a"),
        Reasoning("b"),
        None,
        "one",
        "\n\ntwo",
        Reasoning("\n\nc"),
        None,
    ]


def test_the_end_of_a_response_has_calls_structured_output_and_usage() -> None:
    schema = {"type": "object", "title": "Weather Report"}
    asked = ModelRequestParameters(output_tools=[ToolDefinition(name="final", parameters_json_schema=schema)])
    response = ModelResponse(
        [
            ToolCallPart("charge", '{"dollars": 7}', "c1"),
            ToolCallPart("final", '{"city": "Ulm"}', "c2"),
            ToolCallPart("odd", "[1", "c3"),
            NativeToolCallPart("web_search", {"query": "x" * 20_000}, tool_call_id="c4"),
            NativeToolReturnPart("web_search", "found", "c4"),
        ],
        usage=RequestUsage(input_tokens=3, output_tokens=2, cache_read_tokens=1),
    )
    reader = ResponseReader(asked, "my_")
    *pieces, native, usage = reader.end(response)
    assert pieces == [
        Call("my_charge", {"dollars": 7}, id="c1"),
        Payload("Weather_Report", {"city": "Ulm"}),
        Call("my_odd", {"arguments": "[1"}, id="c3"),
    ]
    assert isinstance(native, Call)
    assert (native.name, len(native.args["arguments"])) == ("native_web_search", 10_000)
    assert usage == Usage(3, 2, 5, cache_read_input_tokens=1)
    assert (reader.call_ids, reader.hidden_ids) == (["c1", "c3", "c4"], ["c2"])
    assert native_results(response) == [("c4", "native_web_search", "found", False)]


def test_structured_output_of_the_provider_is_a_payload_beside_its_text() -> None:
    wanted = OutputObjectDefinition(name="Weather", json_schema={})
    asked = ModelRequestParameters(output_mode="native", output_object=wanted)
    assert list(ResponseReader(asked, "").end(ModelResponse([TextPart('{"city": "Ulm"}')]))) == [
        Payload("Weather", {"city": "Ulm"})
    ]
    assert list(ResponseReader(asked, "").end(ModelResponse([TextPart("no JSON")]))) == []


def test_messages_are_encoded_without_loss() -> None:
    messages: list[ModelMessage] = [
        ModelRequest([UserPromptPart(["look", PICTURE])]),
        ModelResponse([ThinkingPart("a", signature="s", provider_name="p"), ToolCallPart("t", '{"a": 1}', "c")]),
        ModelRequest([ToolReturnPart("t", {"b": 2}, "c", metadata={"m": 1})]),
    ]
    assert decoded(encoded(messages)) == messages


def test_later_runs_read_the_kept_messages_and_not_what_clients_see() -> None:
    first = ModelResponse([TextPart("I look."), ToolCallPart("charge", '{"dollars": 7}', "own")])
    returned = ModelRequest([ToolReturnPart("charge", "done", "own", metadata={"private": 1})])
    last = ModelResponse([TextPart("Done.")])
    system = ModelRequest([SystemPromptPart("You bank.")])
    [kept_first] = keep_of([system, first], ["own"], [])
    [kept_last] = keep_of([returned, last], [], [])
    prompt, history = history_of(
        [
            message("user", "pay"),
            message("assistant", "I look.", tool_calls=[called("call_1", "charge")], keep=kept_first.data),
            message("tool", "done", tool_call_id="call_1"),
            message("assistant", "Done.", keep=kept_last.data),
            message("user", "again"),
        ]
    )
    assert prompt == "again"
    system_prompt, asked, *rest = history
    assert [system_prompt, *rest] == [system, first, returned, last]
    assert isinstance(asked.parts[0], UserPromptPart)
    assert asked.parts[0].content == "pay"


def test_each_call_of_the_history_has_a_result() -> None:
    cut = ModelResponse(
        [ToolCallPart("a", "{}", "o1"), ToolCallPart("b", "{}", "o2"), ToolCallPart("final", "{}", "o3")]
    )
    [kept] = keep_of([cut], ["o1", "o2"], ["o3"])
    calls = [called("c1", "a"), called("c2", "b")]
    _, history = history_of(
        [
            message("assistant", tool_calls=calls, keep=kept.data),
            message("tool", "shown", tool_call_id="c1"),
            message("user", "go on"),
        ]
    )
    found = {
        part.tool_call_id: (part.tool_name, part.content)
        for each in history
        for part in each.parts
        if isinstance(part, ToolReturnPart)
    }
    assert found == {"o1": ("a", "shown"), "o2": ("b", NOT_CARRIED_OUT), "o3": ("final", OUTPUT_TAKEN)}


def test_messages_of_others_are_read_as_clients_see_them() -> None:
    picture = wire.ImagePart(wire.ImageUrl("data:image/png;base64," + base64.b64encode(b"png").decode()))
    content = [wire.TextPart("see"), picture, wire.FilePart("a.txt", "text/plain", text="words")]
    prompt, history = history_of(
        [
            message("assistant", "Hello", tool_calls=[called("c1", "my_charge", '{"a": 1}')], keep=b"of another"),
            message("tool", "done", tool_call_id="c1"),
            message("user", content),
        ],
        "my_",
    )
    assert [type(each) for each in history] == [ModelResponse, ModelRequest]
    assert history[0].parts == [TextPart("Hello"), ToolCallPart("charge", '{"a": 1}', "c1")]
    assert prompt == ["see", BinaryContent.from_data_uri(picture.image_url.url), "[file a.txt]\nwords"]
    broken = [wire.ImagePart(wire.ImageUrl("data:image/png,%00"))]
    assert history_of([message("user", broken)])[0] == ["[an image that cannot be read]"]


def test_too_large_results_are_left_out_of_the_kept_messages_first() -> None:
    large = ModelRequest([ToolReturnPart("t", "x" * KEEP_MAX_BYTES, "c")])
    answer = ModelResponse([TextPart("short")])
    [kept] = keep_of([large, answer], [], [])
    assert history_of([message("assistant", "short", keep=kept.data), message("user")])[1] == [answer]
    assert keep_of([ModelResponse([TextPart("x" * KEEP_MAX_BYTES)])], [], []) == []


class Point(BaseModel):
    x: int


@pytest.mark.parametrize(
    ("value", "read"),
    [
        ("text", "text"),
        ([1, {"a": None}], [1, {"a": None}]),
        (Point(x=1), {"x": 1}),
        (
            BinaryContent(b"\x00\xff", media_type="image/png"),
            BinaryContent.narrow_type(BinaryContent(b"\x00\xff", media_type="image/png")),
        ),
        (ToolReturn("a", content=["b"], metadata={"c": 1}), ToolReturn("a", content=["b"], metadata={"c": 1})),
    ],
)
def test_values_of_tools_are_the_same_in_a_replay(value: object, read: object) -> None:
    assert _decoded(_encoded(value)) == read


def test_policies_follow_what_the_framework_demands() -> None:
    settings = Settings({"a": "deny"}, {"a": "safe"}, "p_")
    found = [
        settings.values(each)
        for each in (
            ToolDefinition(name="a", kind="unapproved"),
            ToolDefinition(name="b", kind="unapproved"),
            ToolDefinition(name="c", kind="external"),
            ToolDefinition(name="d"),
        )
    ]
    assert [(each["name"], each["policy"], each["retry"]) for each in found] == [
        ("p_a", "deny", "safe"),
        ("p_b", "ask", "once"),
        ("p_c", "client", "once"),
        ("p_d", "auto", "once"),
    ]


def test_a_policy_of_an_unknown_tool_is_refused() -> None:
    agent = Agent(TestModel(), tools=[arguments_of])
    with pytest.raises(TypeError, match=r"no tools \['charg'\]; known: \['arguments_of'\]"):
        serve(agent, name="bank", policies={"charg": "ask"})


def test_parameters_of_the_chat_are_settings_of_the_model() -> None:
    found = settings_of({"temperature": 0.5, "max_tokens": 9, "model": "x", "reasoning_effort": "low", "top_p": None})
    assert found == {"temperature": 0.5, "max_tokens": 9, "thinking": "low"}


def test_the_server_imports_nothing_of_the_framework() -> None:
    code = "import sys, threadcast, threadcast.wiring.app_file; sys.exit('pydantic_ai' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_missing_framework_says_how_to_install_it() -> None:
    code = "import sys; sys.modules['pydantic_ai'] = None; import threadcast.agents.pydantic_ai"
    found = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert "pydantic-ai is not installed: pip install 'threadcast[pydantic-ai]'" in found.stderr


@pytest.mark.anyio
async def test_a_tool_that_asks_runs_for_no_call_that_nobody_has_seen() -> None:
    ran: list[str] = []

    def charge() -> str:
        ran.append("charged")
        return "charged"

    tools: FunctionToolset[None] = FunctionToolset([Tool(charge, requires_approval=True)])
    nothing_shown = cast(Messages, SimpleNamespace(began=lambda _: None))
    seam = cast(Seam, SimpleNamespace(declare=_nothing))
    toolset = RecordedToolset(tools, Settings({}, {}, ""), seam, nothing_shown)
    ctx: Any = RunContext(deps=None, model=TestModel(), usage=RunUsage(), tool_call_id="unseen")
    found = await toolset.get_tools(ctx)
    with pytest.raises(ToolFailed, match="only the model may call it"):
        await toolset.call_tool("charge", {}, ctx, found["charge"])
    assert ran == []


async def _nothing(_: object) -> None:
    pass
