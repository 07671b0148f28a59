"""The steps around one call: arguments are completed and resolved, and results are divided between model and
clients."""

import msgspec
import pytest

from tests.unit.fake_tools import FakeTool
from tests.unit.pure_chat import PureChat, call, table
from tests.unit.tool_desk import tool_context
from threadcast.agent_loop.calls.bindings import bound
from threadcast.agent_loop.calls.gates import input_hash
from threadcast.agent_loop.calls.permissions import digest_of
from threadcast.agent_loop.calls.telling import HIDDEN, summarized, tell
from threadcast.agent_loop.history.view import model_view
from threadcast.agent_loop.outcomes import tool_done
from threadcast.agent_loop.steps import RunTool
from threadcast.profiles.profile import ChatTools, Profile
from threadcast.settings import Tool as ToolSettings
from threadcast.tools.base import ToolResult
from threadcast.tools.context import ToolContext
from threadcast.tools.http import expand
from threadcast.tools.operated import OperatedTool
from threadcast.tools.python import tool
from threadcast.tools.resolvers import resolver
from threadcast.tools.traits import Binding, Traits
from threadcast_protocol.wire.commands import SetParams, ToolDecision, UserMessage
from threadcast_protocol.wire.deltas import SetToolCalls
from threadcast_protocol.wire.errors import ToolFailed
from threadcast_protocol.wire.events import MessageAdded, PayloadAdded, ToolStatus
from threadcast_protocol.wire.messages import JsonObject
from threadcast_protocol.wire.principal import LOCAL, Principal

pytestmark = pytest.mark.anyio

ID = "0f9b1c7e-0000-4000-8000-0123456789ab"
OTHER = "0f9b1c7e-0000-4000-8000-ba9876543210"
BINDING = Binding("id", "page.id", "uuid")
CONTEXT: JsonObject = {"page": {"id": ID}}


@pytest.mark.row("LOOP-11")
@pytest.mark.parametrize(
    ("written", "executed"),
    [({}, ID), ({"id": ""}, ID), ({"id": None}, ID), ({"id": "the first"}, ID), ({"id": OTHER}, OTHER)],
)
def test_a_bound_argument_is_filled_unless_the_models_value_fits(written: JsonObject, executed: str) -> None:
    assert bound(written, [BINDING], CONTEXT) == {"id": executed}


def test_a_context_that_does_not_say_it_or_says_it_wrongly_leaves_the_argument_as_it_was() -> None:
    assert bound({"id": "x"}, [BINDING], {}) == {"id": "x"}
    assert bound({}, [BINDING], {"page": {"id": "no id"}}) == {}


@pytest.mark.row("LOOP-11")
def test_what_is_executed_is_what_the_question_its_hash_and_the_status_show() -> None:
    read = FakeTool(name="read", policy="ask", input_schema={"type": "object", "required": ["id"]})
    chat = PureChat(ChatTools(Profile(name="agent", bindings={"read": (BINDING,)}), {"read": read}, frozenset(), "m"))
    assert "required" not in chat.tools.specs()[0].input_schema
    chat.command(UserMessage(client_request_id="a", content="hi", context=CONTEXT))
    chat.asks(call("c0", "read", '{"id":"?"}'))
    (reason,) = chat.state.runtime.pause_reasons
    run = chat.state.private.run
    assert run is not None
    assert reason.input == {"id": ID}
    tool = chat.tools.get(reason.tool_name)
    assert tool is not None
    assert reason.input_hash == input_hash("c1", run.run_id, "c0", {"id": ID}, digest_of(tool))
    assert ID in reason.command


@pytest.mark.row("LOOP-11")
def test_a_call_is_asked_about_again_when_the_context_that_completes_it_changes_after_the_question() -> None:
    write = FakeTool(name="write", policy="ask", traits=Traits(bindings=(BINDING,)))
    chat = PureChat(
        table({"write": write, "other": FakeTool(name="other", policy="ask")}),
        SetParams(client_request_id="p", patch={"context": CONTEXT}),
        UserMessage(client_request_id="a", content="hi"),
    )
    chat.asks(call("c0", "write"), call("c1", "other"))
    accept = ToolDecision(client_request_id="d", tool_call_id="c0", accepted=True)
    chat.command(accept)
    chat.command(SetParams(client_request_id="q", patch={"context": {"page": {"id": OTHER}}}))
    chat.command(ToolDecision(client_request_id="e", tool_call_id="c1", accepted=True))
    (reason,) = chat.state.runtime.pause_reasons
    assert (reason.tool_call_id, reason.input) == ("c0", {"id": OTHER})
    chat.command(msgspec.structs.replace(accept, client_request_id="f"))
    assert isinstance(chat.step, RunTool) and msgspec.json.decode(chat.step.arguments) == {"id": OTHER}


@pytest.mark.row("LOOP-11")
def test_a_bound_call_runs_with_its_completed_arguments() -> None:
    read = FakeTool(name="read", traits=Traits(bindings=(BINDING,)))
    chat = PureChat(table({"read": read}), UserMessage(client_request_id="a", content="hi", context=CONTEXT))
    chat.stream(SetToolCalls([call("c0", "read")]))
    events = chat.finish()
    assert isinstance(chat.step, RunTool) and msgspec.json.decode(chat.step.arguments) == {"id": ID}
    (status,) = [event for event in events if isinstance(event, ToolStatus)]
    assert status.input == {"id": ID}


@pytest.mark.row("TOOL-8")
@pytest.mark.parametrize(
    ("summarize", "left"),
    [
        (("id", "items.name"), '{"id":1,"items":[{"name":"a"}]}'),
        ("first_sentence", '{"id":1,"text":"One.'),
        (lambda text: f"{len(text)} bytes", "72 bytes"),
    ],
)
def test_a_summary_is_what_the_model_reads_and_the_whole_is_a_payload(summarize: object, left: str) -> None:
    made = FakeTool(name="t", traits=Traits(summarize=summarize, payload_type="thing"))  # type: ignore[arg-type]  # of the table
    whole = '{"id":1,"text":"One. Two.","secret":"x","items":[{"name":"a","size":2}]}'
    told = tell(ToolResult(content=whole), made)
    assert told.result.content == left and told.withheld is None
    (payload,) = told.result.payloads
    assert (payload.type, payload.data["secret"]) == ("thing", "x")


def test_a_summarizer_that_fails_shows_nothing_of_the_result() -> None:
    assert "secret" not in summarized("a secret", lambda text: str(1 // 0))
    assert summarized("One. Two.", ("field",)) == "One."


@pytest.mark.row("EVT-10")
@pytest.mark.parametrize(("visibility", "shown"), [("full", "one\ntwo"), ("summary", "one"), ("hidden", HIDDEN)])
def test_clients_see_of_a_result_what_its_tool_allows_and_the_model_reads_all_of_it(
    visibility: str, shown: str
) -> None:
    made = FakeTool(name="t", traits=Traits(visibility=visibility))  # type: ignore[arg-type]  # of the table above
    chat = PureChat(table({"t": made}), UserMessage(client_request_id="a", content="hi"))
    chat.asks(call("c0", "t"))
    step = chat.step
    assert isinstance(step, RunTool)
    told = tell(ToolResult(content="one\ntwo"), made)
    events = chat.write(lambda it: tool_done(it, step.call, told.result, 1, chat.tools, None, told.withheld))
    assert [e.message.content for e in events if isinstance(e, MessageAdded)] == [shown]
    assert [m.content for m in model_view(chat.state, {}) if m.role == "tool"] == ["one\ntwo"]
    assert not [e for e in events if isinstance(e, PayloadAdded)]


@pytest.mark.row("EVT-10")
def test_of_a_hidden_result_no_image_and_no_rest_gets_an_address() -> None:
    picture = (
        "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJ"
        "AAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
    )
    told = tell(ToolResult(content=f"seen\n{picture}"), FakeTool(name="t", traits=Traits(visibility="hidden")))
    assert told.result.content == HIDDEN
    assert told.withheld is not None and "base64" not in told.withheld and "seen" in told.withheld


def context(who: Principal = LOCAL, page: str = "") -> ToolContext:
    return tool_context(principal=who, context={"page": page})


@pytest.mark.row("TOOL-9")
async def test_names_become_ids_once_for_each_principal_and_a_missing_one_names_where_to_look() -> None:
    asked: list[tuple[str, str]] = []

    async def find(name: str, ctx: ToolContext) -> str:
        asked.append((ctx.principal.id, name))
        if name != "intro":
            raise LookupError
        return ID

    @tool(traits=Traits(resolvers={"article": resolver(find, discovery="list_articles")}))
    def read(article: str) -> str:
        return article

    made = OperatedTool(read, ToolSettings(), 30)

    async def run(name: str, who: Principal) -> str:
        (result,) = [output async for output in made.run({"article": name}, context(who))]
        assert isinstance(result, ToolResult)
        return result.content

    ann, bob = Principal("ann"), Principal("bob")
    assert [await run("intro", ann), await run("intro", ann), await run("intro", bob)] == [ID] * 3
    assert await run(OTHER, ann) == OTHER
    assert asked == [("ann", "intro"), ("bob", "intro")]
    with pytest.raises(ToolFailed, match="list_articles"):
        await run("outro", ann)


@pytest.mark.row("TOOL-9")
async def test_a_name_means_another_thing_in_another_place() -> None:
    async def find(name: str, ctx: ToolContext) -> str:
        return f"{name} of {ctx.context['page']}"

    @tool(traits=Traits(resolvers={"node": find}))
    def read(node: str) -> str:
        return node

    made = OperatedTool(read, ToolSettings(), 30)
    outputs = [output for page in "ab" async for output in made.run({"node": "start"}, context(page=page))]
    assert [output.content for output in outputs if isinstance(output, ToolResult)] == ["start of a", "start of b"]


@pytest.mark.row("TOOL-7")
@pytest.mark.parametrize("value", ["../admin", "a//b", "/etc", "..", ".", "", "a\\b", "a\r\nHost: x", "\x00"])
def test_an_argument_that_is_no_path_segment_is_refused(value: str) -> None:
    with pytest.raises(ToolFailed, match="segment"):
        expand("http://api.test/articles/{id}", {"id": value})


@pytest.mark.row("TOOL-7")
@pytest.mark.parametrize(
    ("value", "path"),
    [("a@evil.test", "a%40evil.test"), ("a?b#c", "a%3Fb%23c"), ("é ü", "%C3%A9%20%C3%BC"), ("%2e%2e", "%252e%252e")],
)
def test_an_argument_stays_in_its_segment(value: str, path: str) -> None:
    assert expand("http://api.test/articles/{id}", {"id": value, "q": 1}) == (
        f"http://api.test/articles/{path}",
        {"q": 1},
    )


def test_the_question_about_a_call_with_hidden_input_does_not_show_it() -> None:
    chat = PureChat(
        table({"t": FakeTool(name="t", policy="ask", hide_input=True)}),
        UserMessage(client_request_id="a", content="hi"),
    )
    chat.asks(call("c0", "t", '{"pin":"1234"}'))
    (reason,) = chat.state.runtime.pause_reasons
    assert (reason.command, reason.input) == ("t", {})
