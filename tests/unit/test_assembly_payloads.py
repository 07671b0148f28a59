"""Payload types and previews in an operator's settings: an invalid setting stops the start with a reason."""

from pathlib import Path

import pytest

from tests.unit.pure_chat import PureChat, call, say
from tests.unit.pure_chat import table as chat_table
from threadcast.agent_loop.calls.previews import PREVIEW_SENT
from threadcast.settings import Payload, Profile, Settings, Tool
from threadcast.tools.http import HttpClient
from threadcast.tools.preview import Preview
from threadcast.wiring.app_file import app_file_of
from threadcast.wiring.payloads import payload_types_of
from threadcast.wiring.profiles import profiles_of
from threadcast.wiring.tools import tools_of
from threadcast_protocol.wire.commands import ToolDecision
from threadcast_protocol.wire.events import PayloadAdded, PayloadUpdated
from threadcast_protocol.wire.messages import JsonObject

APP = '''
import msgspec
from threadcast.profiles.payload_types import payload_type
from threadcast.tools.preview import Preview
from threadcast.tools.python import tool
from threadcast.tools.traits import Traits

class Article(msgspec.Struct):
    """A text with a title."""
    title: str

article = payload_type(name="article", model=Article, marker="ARTICLE", summary="{title}")

@tool(policy="preview", traits=Traits(payload_type="article", commit_tool="save"))
def propose(title: str) -> Preview:
    return Preview("new", {"title": title})

@tool()
def save(title: str) -> str:
    return "saved"
'''


@pytest.fixture
def app(tmp_path: Path) -> str:
    file = tmp_path / "articles_app.py"
    file.write_text(APP)
    return str(file)


def test_a_file_of_tools_registers_types_and_the_table_has_the_last_word(app: str) -> None:
    named = {"agent": Profile(payloads=["article", "chart"])}
    settings = Settings(profiles=named, payloads={"chart": Payload(marker="CHART", summary="{title}")})
    file = app_file_of(app)
    types = payload_types_of(settings, file.payload_types)
    assert {kind.marker for kind in types.values()} == {"ARTICLE", "CHART"}
    assert types["article"].schema["required"] == ["title"]
    assert set(profiles_of(settings, payload_types=types)["agent"].payload_types) == {"article", "chart"}
    tools = tools_of(settings, file.tools, HttpClient())
    assert (tools["propose"].policy, tools["propose"].retry, tools["save"].retry) == ("preview", "safe", "once")
    over = Settings(payloads={"article": Payload(marker="TEXT")})
    assert payload_types_of(over, file.payload_types)["article"].marker == "TEXT"


def test_types_that_cannot_be_told_apart_stop_the_start() -> None:
    settings = Settings(payloads={"a": Payload(marker="DATA"), "b": Payload(marker="DATA")})
    with pytest.raises(ValueError, match=r"payloads\.b\.marker: payloads.a has the marker DATA too"):
        payload_types_of(settings)
    with pytest.raises(ValueError, match=r"payloads\.a\.schema: must be of an object"):
        payload_types_of(Settings(payloads={"a": Payload(schema={"type": "string"})}))


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"clock": Tool(policy="preview")}, "tool clock: .* needs a payload_type"),
        ({"propose": Tool(commit_tool="gone")}, "its commit_tool 'gone' does not exist"),
        ({"save": Tool(policy="deny")}, "its commit_tool 'save' has the policy 'deny'"),
        ({"save": Tool(enabled=False)}, "its commit_tool 'save' does not exist"),
    ],
)
def test_a_preview_that_could_not_be_shown_or_carried_out_stops_the_start(
    app: str, table: dict[str, Tool], words: str
) -> None:
    settings = Settings(tools=table)
    with pytest.raises(ValueError, match=words):
        tools_of(settings, app_file_of(app).tools, HttpClient())


NAMING = """
import msgspec
from threadcast import Preview, Traits, schema_of, tool

class Order(msgspec.Struct):
    item: str
    count: int

@tool(policy="preview", traits=Traits(commit_tool="place_order"))
def propose_order(item: str, count: int) -> Preview:
    return Preview("An order", {"item": item, "count": count})

@tool(traits=Traits(preview_type="order", preview_schema=schema_of(Order)))
def place_order(item: str, count: int) -> str:
    return "placed"
"""


def named(tmp_path: Path, table: dict[str, Tool] | None = None, text: str = NAMING) -> PureChat:
    """Return a chat whose model has called `propose_order`."""
    (tmp_path / "orders_app.py").write_text(text)
    tools = tools_of(Settings(tools=table or {}), app_file_of(str(tmp_path / "orders_app.py")).tools, HttpClient())
    chat = PureChat(chat_table(tools), say("q"))
    chat.asks(call("c1", "propose_order"))
    return chat


def read(chat: PureChat) -> str:
    """Return the call as the model reads it."""
    return next(str(message.content) for message in chat.state.nodes.values() if message.role == "tool")


@pytest.mark.row("OLD-7")
def test_a_write_tool_names_the_type_and_schema_that_its_preview_tool_shows(tmp_path: Path) -> None:
    chat = named(tmp_path)
    events = chat.tool_answers("", preview=Preview("An order", {"item": "tea", "count": 2}))
    (added,) = [event for event in events if isinstance(event, PayloadAdded)]
    assert (added.payload_type, added.approval, added.unregistered) == ("order", "pending", False)
    assert chat.state.nodes[added.message_id].content == PREVIEW_SENT
    chat.finish()

    # Data that a person provides instead is checked against the schema, too.
    edited: JsonObject = {"item": "tea", "count": "two"}
    accepts = ToolDecision(client_request_id="e", payload_id=added.payload_id, accepted=True, edited_input=edited)
    told = chat.command(accepts)
    assert [e.approval for e in told if isinstance(e, PayloadUpdated)] == ["accepted", "commit_failed"]


@pytest.mark.row("OLD-7")
def test_an_object_that_breaks_the_write_tools_schema_is_shown_to_nobody(tmp_path: Path) -> None:
    chat = named(tmp_path)
    events = chat.tool_answers("", preview=Preview("An order", {"item": "tea", "count": "two"}))
    assert not any(isinstance(event, PayloadAdded) for event in events)
    assert "/count" in read(chat)


@pytest.mark.row("OLD-7")
def test_the_table_may_name_them_for_a_tool_that_says_nothing(tmp_path: Path) -> None:
    silent = NAMING.replace('@tool(traits=Traits(preview_type="order", preview_schema=schema_of(Order)))', "@tool()")
    schema = {"type": "object", "required": ["colour"]}
    chat = named(tmp_path, {"place_order": Tool(preview_type="order", preview_schema=schema)}, silent)
    chat.tool_answers("", preview=Preview("An order", {"item": "tea"}))
    assert "'colour' is a required property" in read(chat)


@pytest.mark.parametrize(
    ("table", "words"),
    [
        (
            {"propose_order": Tool(payload_type="parcel")},
            "'parcel', and its commit_tool place_order has the preview_type",
        ),
        (
            {"place_order": Tool(preview_schema={"type": "string"})},
            "tool place_order: preview_schema: must be of an object",
        ),
        (
            {"clock": Tool(preview_schema={"type": "object", "$ref": "http://x/y"})},
            r"tool clock: preview_schema: \$ref",
        ),
    ],
)
def test_what_a_write_tool_cannot_say_stops_the_start(tmp_path: Path, table: dict[str, Tool], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        named(tmp_path, table)
