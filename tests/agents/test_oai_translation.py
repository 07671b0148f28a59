"""The translation between the OpenAI Agents SDK and the chat: responses, history, outputs of tools, and settings."""

import subprocess
import sys
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
from agents import Agent, FunctionTool, GuardrailFunctionOutput, InputGuardrail, WebSearchTool, function_tool
from agents.agent_output import AgentOutputSchema
from agents.exceptions import InputGuardrailTripwireTriggered, ModelBehaviorError
from agents.guardrail import InputGuardrailResult
from agents.tool import LocalShellTool
from agents.tool_context import ToolContext
from openai.types.responses import ResponseCodeInterpreterToolCall, ResponseFunctionWebSearch
from openai.types.responses.response_code_interpreter_tool_call import OutputLogs
from openai.types.responses.response_function_web_search import ActionSearch
from pydantic import BaseModel

from tests.agents.oai_model import call, response, said, thought
from threadcast.agents.openai_agents import serve
from threadcast.agents.openai_agents.graph import AGENTS_MAX, agents_of
from threadcast.agents.openai_agents.guardrails import INFO_MAX_CHARACTERS, trip_text
from threadcast.agents.openai_agents.history import NOT_CARRIED_OUT, Kept, input_of, keep_of
from threadcast.agents.openai_agents.models import Messages
from threadcast.agents.openai_agents.responses import (
    HOSTED_ARGUMENTS_MAX_CHARACTERS,
    HOSTED_RESULT_MAX_CHARACTERS,
    ResponseReader,
    arguments_of,
    decoded_response,
    encoded_response,
    hosted_results,
    input_items,
)
from threadcast.agents.openai_agents.serving import settings_of
from threadcast.agents.openai_agents.tools import Settings, recorded_tool, value_of
from threadcast.custom_agents.pieces import KEEP_MAX_BYTES, Call, Text
from threadcast.custom_agents.rounds import RoundMessage
from threadcast.custom_agents.seam import Seam
from threadcast.tools.base import Payload
from threadcast_protocol.wire.messages import FilePart, FunctionCall, ImagePart, ImageUrl, TextPart, ToolCall

pytestmark = pytest.mark.row("AGT-8")


class Event:
    """An event of an operator's own model; such an event may be any object with the fields of the API's events."""

    def __init__(self, type: str, **fields: object) -> None:
        self.type = type
        self.__dict__.update(fields)


def message(role: str, content: Any = "", **fields: Any) -> RoundMessage:
    return RoundMessage(role=role, content=content, message_id="m", **fields)


def read(*items: object, hidden: tuple[str, ...] = (), schema: AgentOutputSchema | None = None) -> list[object]:
    reader = ResponseReader(hidden, schema, "p_")
    pieces = list(reader.read(Event("response.completed", response=response(list(items)))))
    return [*pieces, *reader.end()][:-1]  # without the usage


def test_a_response_survives_as_json_without_loss() -> None:
    reader = ResponseReader((), None, "")
    items = [thought("I think."), said("Hello"), call("find", "call_1", q="tea")]
    list(reader.read(Event("response.completed", response=response(items))))
    whole = reader.whole()
    again = decoded_response(msgspec.json.decode(msgspec.json.encode(encoded_response(whole))))
    assert again == whole
    assert again.usage.input_tokens_details.cached_tokens == 4
    assert input_items(whole)[0]["encrypted_content"] == "c2VjcmV0"


def test_text_that_was_not_streamed_and_calls_are_shown_but_handoffs_are_not() -> None:
    handed = call("transfer_to_b", "call_2")
    assert read(said("Hello"), call("find", "call_1", q="tea"), handed, hidden=("transfer_to_b",)) == [
        Text("Hello"),
        Call("p_find", {"q": "tea"}, id="call_1"),
    ]


def test_parts_of_a_text_are_separated() -> None:
    reader = ResponseReader((), None, "")
    deltas = [("a", 0), ("b", 0), ("c", 1)]
    pieces = [
        piece
        for delta, part in deltas
        for piece in reader.read(Event("response.output_text.delta", delta=delta, output_index=0, content_index=part))
    ]
    assert pieces == [Text("a"), Text("b"), Text("\n\n"), Text("c")]


@pytest.mark.parametrize("kind", ["response.failed", "response.incomplete", "error"])
def test_a_failed_response_names_its_reason(kind: str) -> None:
    with pytest.raises(ModelBehaviorError, match=f"{kind}: too long"):
        list(ResponseReader((), None, "").read(Event(kind, message="too long")))
    with pytest.raises(ModelBehaviorError, match="before it was complete"):
        list(ResponseReader((), None, "").end())


@pytest.mark.parametrize(
    ("written", "arguments"),
    [("", {}), ('{"a": 1}', {"a": 1}), ("[1]", {"arguments": "[1]"}), ("{", {"arguments": "{"}), ("[" * 9_999, None)],
)
def test_arguments_that_are_no_object_are_shown_as_text(written: str, arguments: object) -> None:
    assert arguments_of(written) == (arguments if arguments is not None else {"arguments": written})


def test_calls_of_hosted_tools_are_shown_with_their_results() -> None:
    search = ResponseFunctionWebSearch(
        id="ws_1", type="web_search_call", status="completed", action=ActionSearch(type="search", query="tea")
    )
    [piece] = read(search)
    assert isinstance(piece, Call)
    assert (piece.name, piece.id, piece.args["action"]["query"]) == ("openai_web_search", "ws_1", "tea")
    reader = ResponseReader((), None, "")
    list(reader.read(Event("response.completed", response=response([search]))))
    assert hosted_results(reader.whole()) == [("ws_1", "openai_web_search", "completed", False)]


class Weather(BaseModel):
    city: str


def test_structured_output_is_a_payload_only_if_it_fits() -> None:
    assert read(said('{"city": "Ulm"}'), schema=AgentOutputSchema(Weather))[1:] == [Payload("Weather", {"city": "Ulm"})]
    assert read(said('{"town": "Ulm"}'), schema=AgentOutputSchema(Weather))[1:] == []
    [payload] = read(said('{"response": [1]}'), schema=AgentOutputSchema(list[int]))[1:]
    assert payload == Payload("list_int", {"response": [1]})


def kept(*items: dict[str, object], calls: tuple[str, ...] = ()) -> bytes:
    [piece] = keep_of(Kept("bank", list(items), list(calls)))
    return piece.data


def function_call(call_id: str) -> dict[str, object]:
    return {"type": "function_call", "call_id": call_id, "name": "find", "arguments": "{}"}


def output(call_id: str, text: object) -> dict[str, object]:
    return {"type": "function_call_output", "call_id": call_id, "output": text}


def test_kept_items_and_outputs_come_back_as_they_were() -> None:
    shown = ToolCall(id="call_chat", index=0, function=FunctionCall("find", "{}"))
    reasoning: dict[str, object] = {"type": "reasoning", "id": "rs", "encrypted_content": "x", "summary": []}
    image: dict[str, object] = output("own", [{"type": "input_image", "image_url": "data:"}])
    last: dict[str, object] = {"role": "assistant", "content": "Done"}
    messages = [
        message("user", "go"),
        message("assistant", "", tool_calls=[shown], keep=kept(reasoning, function_call("own"), calls=("own",))),
        message("tool", "[image]", tool_call_id="call_chat"),
        message("assistant", "Done", keep=kept(image, last)),
    ]
    first = {"role": "user", "content": "go"}
    assert input_of(messages) == ([first, reasoning, function_call("own"), image, last], "bank")
    # If a run ended after the call, the next run of the agent has only the output that clients see.
    assert input_of(messages[:3])[0][-1] == output("own", "[image]")
    assert input_of(messages[:2])[0][-1] == output("own", NOT_CARRIED_OUT)


def test_messages_without_kept_items_are_translated_with_images_and_files() -> None:
    shown = ToolCall(id="call_chat", index=0, function=FunctionCall("find", '{"q": 1}'))
    parts = [
        TextPart("see"),
        ImagePart(ImageUrl("data:image/png;base64,AA")),
        FilePart("a.pdf", "application/pdf", data="AA"),
        FilePart("a.txt", "text/plain", text="hello"),
    ]
    items, agent = input_of(
        [
            message("user", parts),
            message("assistant", "Look", tool_calls=[shown], keep=b"of an older version"),
            message("tool", "found", tool_call_id="call_chat"),
        ]
    )
    assert agent == ""
    assert [part["type"] for part in items[0]["content"]] == ["input_text", "input_image", "input_file", "input_text"]
    assert items[1:] == [
        {"role": "assistant", "content": "Look"},
        {"type": "function_call", "call_id": "call_chat", "name": "find", "arguments": '{"q": 1}'},
        output("call_chat", "found"),
    ]


def test_too_large_items_are_left_out_of_what_a_message_keeps() -> None:
    large = output("a", "x" * KEEP_MAX_BYTES)
    [piece] = keep_of(Kept("bank", [large, function_call("b")], ["b"]))
    assert msgspec.json.decode(piece.data, type=Kept).items == [function_call("b")]
    assert keep_of(Kept("bank", [{"type": "message", "content": "x" * KEEP_MAX_BYTES}], [])) == []


def test_outputs_of_tools_become_json_or_the_text_that_the_sdk_would_send() -> None:
    tool = FunctionTool("t", "", {"type": "object", "properties": {}, "additionalProperties": False}, None)  # type: ignore[arg-type]  # never invoked
    assert value_of(tool, {"a": [1]}) == {"json": {"a": [1]}}
    assert value_of(tool, Weather(city="Ulm")) == {"text": "city='Ulm'"}
    assert value_of(tool, (1, 2)) == {"text": "(1, 2)"}
    assert value_of(tool, {1: 2}) == {"text": "{1: 2}"}
    assert value_of(tool, "\ud800") == {"text": "\ufffd"}


def test_the_chats_parameters_set_the_models_settings() -> None:
    settings = settings_of({"temperature": 0.5, "max_tokens": 9, "seed": 1, "reasoning_effort": "low"})
    assert (settings.temperature, settings.max_tokens) == (0.5, 9)
    assert settings.reasoning is not None
    assert settings.reasoning.effort == "low"


@function_tool(needs_approval=True)
def pay() -> str:
    """Pay."""
    return "paid"


def test_serve_refuses_what_it_could_not_keep() -> None:
    inner = Agent("inner", tools=[pay])
    shell = LocalShellTool(executor=lambda request: "")
    for agent, problem in [
        (Agent("a", tools=[shell]), "acts without being recorded"),
        (Agent("a", tools=[inner.as_tool("ask_inner", "")]), "needs an approval, which it cannot ask for"),
    ]:
        with pytest.raises(TypeError, match=problem):
            serve(agent)
    with pytest.raises(TypeError, match=r"no agent has the tools \['charge'\]; known: \['pay'\]"):
        serve(Agent("a", tools=[pay]), policies={"charge": "ask"})
    served = serve(Agent("a", tools=[pay, WebSearchTool()]), name="b", tool_prefix="x_", retry={"pay": "safe"})
    [tool] = served.own_tools
    assert (served.name, tool.name, tool.policy, tool.retry) == ("b", "x_pay", "ask", "safe")


def test_traces_are_sent_only_if_the_operator_wants_it() -> None:
    for wanted in (False, True):
        served = serve(Agent("traced"), tracing=wanted)
        config = served.function.__self__.run_config  # type: ignore[attr-defined]  # a method of what is served
        assert config.tracing_disabled is not wanted


@pytest.mark.parametrize(
    ("program", "printed"),
    [
        ("import sys, threadcast, threadcast.wiring; print('agents' in sys.modules)", "False"),
        (
            "import sys; sys.modules['agents'] = None\ntry: import threadcast.agents.openai_agents\n"
            "except ImportError as missing: print(missing)",
            "the OpenAI Agents SDK is not installed: pip install 'threadcast[openai-agents]'",
        ),
    ],
)
def test_the_sdk_is_imported_only_when_it_is_used(program: str, printed: str) -> None:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=True)
    assert done.stdout.strip() == printed


def test_what_hosted_tools_and_guardrails_say_is_cut_where_it_is_shown() -> None:
    ran = ResponseCodeInterpreterToolCall(
        id="ci_1",
        type="code_interpreter_call",
        status="completed",
        container_id="c",
        code="y" * 2 * HOSTED_ARGUMENTS_MAX_CHARACTERS,
        outputs=[OutputLogs(type="logs", logs="x" * 2 * HOSTED_RESULT_MAX_CHARACTERS)],
    )
    [piece] = read(ran)
    assert isinstance(piece, Call)
    assert len(piece.args["arguments"]) == HOSTED_ARGUMENTS_MAX_CHARACTERS
    reader = ResponseReader((), None, "")
    list(reader.read(Event("response.completed", response=response([ran]))))
    [(_, _, result, _)] = hosted_results(reader.whole())
    assert len(result) == HOSTED_RESULT_MAX_CHARACTERS
    assert reader.whole().output == [ran], "the model reads everything again"
    guardrail = InputGuardrail(guardrail_function=lambda *_: GuardrailFunctionOutput("", True), name="g")
    tripped = InputGuardrailTripwireTriggered(
        InputGuardrailResult(guardrail, GuardrailFunctionOutput("z" * 2 * INFO_MAX_CHARACTERS, True))
    )
    assert trip_text(tripped) == f"The input guardrail 'g' stopped the run: {'z' * INFO_MAX_CHARACTERS}"


def test_a_graph_of_handoffs_has_a_bound_and_may_have_circles() -> None:
    first, second = Agent("first"), Agent("second")
    first.handoffs, second.handoffs = [second], [first]
    assert [each.name for each in agents_of(first)] == ["first", "second"]
    for number in range(AGENTS_MAX):
        second.handoffs.append(Agent(f"agent{number}"))
    with pytest.raises(TypeError, match="more than 200 agents"):
        agents_of(first)


@pytest.mark.anyio
@pytest.mark.parametrize("asks", [True, lambda *_: True])
async def test_a_tool_that_asks_runs_for_no_call_that_nobody_has_seen(asks: Any) -> None:
    ran: list[str] = []

    @function_tool(needs_approval=asks)
    def charge() -> str:
        ran.append("charged")
        return "charged"

    nothing_shown = cast(Messages, SimpleNamespace(calls={}))
    tool = recorded_tool(charge, Settings({}, {}, ""), cast(Seam, None), nothing_shown)
    context: Any = ToolContext(None, tool_name="charge", tool_call_id="call_unseen", tool_arguments="{}")
    assert "only the model may call it" in await tool.on_invoke_tool(context, "{}")
    assert ran == []
