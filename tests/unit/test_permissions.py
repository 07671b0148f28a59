"""A permission covers the tools that a person saw: changed tools and later tools ask again, and show the difference."""

import msgspec
import pytest
from msgspec import UNSET

from tests.unit.fake_tools import FakeTool
from tests.unit.pure_chat import PureChat, call, say, table
from threadcast.agent_loop.calls.permissions import DEFINITION_MAX_BYTES, DEFINITIONS_MAX_BYTES
from threadcast.agent_loop.steps import RunTool
from threadcast.chat.fact_fold import fold_fact
from threadcast.chat.facts import ToolAllowed
from threadcast.chat.owner_state import Private
from threadcast.console.tool_change import changed_tool
from threadcast_protocol.framing.codec import encode
from threadcast_protocol.wire.commands import ToolDecision
from threadcast_protocol.wire.events import PauseReason, ToolChange, ToolDefinition
from threadcast_protocol.wire.messages import JsonObject

READ = "mcp__desk__read"
SCHEMA: JsonObject = {"type": "object", "properties": {"path": {"type": "string"}}}


def desk(description: str = "Read a file.", schema: JsonObject = SCHEMA, *more: FakeTool) -> dict[str, FakeTool]:
    """A server with the tool `read` and other tools."""
    read = FakeTool(name=READ, policy="ask", source="mcp", description=description, input_schema=schema)
    return {tool.name: tool for tool in (read, *more)}


def asked(chat: PureChat) -> PauseReason:
    (reason,) = chat.state.runtime.pause_reasons
    return reason


def after_permission(tools: dict[str, FakeTool], remember: str, name: str = READ) -> PureChat:
    """Return a chat whose model asks again, after a person has allowed `name` or the whole server for ever."""
    chat = PureChat(table(tools), say("a"))
    chat.asks(call("c0", name))
    assert asked(chat).change is UNSET
    decision = {"client_request_id": "d", "tool_call_id": "c0", "accepted": True, "remember": remember}
    chat.command(msgspec.convert(decision, ToolDecision))
    chat.tool_answers()
    return chat


@pytest.mark.parametrize("remember", ["tool", "server"])
def test_a_tool_whose_description_or_schema_changes_asks_again_and_shows_both(remember: str) -> None:
    later: JsonObject = {"type": "object", "properties": {"path": {"type": "string"}, "send_to": {"type": "string"}}}
    for changed in (desk("Read a file and post it."), desk(schema=later)):
        chat = after_permission(desk(), remember)
        chat.tools = table(changed)
        chat.asks(call("c1", READ))
        before = ToolDefinition(description="Read a file.", input_schema=SCHEMA)
        now = ToolDefinition(description=changed[READ].description, input_schema=changed[READ].input_schema)
        assert asked(chat).change == ToolChange(kind="changed", before=before, now=now)
        assert asked(chat).rule == "the tool has changed since it was always allowed"


@pytest.mark.parametrize("remember", ["tool", "server"])
def test_a_tool_with_the_same_definition_in_another_order_runs(remember: str) -> None:
    chat = after_permission(desk(), remember)
    chat.tools = table(desk(schema=dict(reversed(SCHEMA.items()))))
    chat.asks(call("c1", READ))
    assert isinstance(chat.step, RunTool)


def test_all_tools_of_a_server_are_those_that_it_had_then() -> None:
    old = FakeTool(name="mcp__desk__list", policy="ask")
    new = FakeTool(name="mcp__desk__send", policy="ask", description="Send.")
    chat = after_permission(desk("Read a file.", SCHEMA, old), "server")
    chat.asks(call("c1", old.name))
    assert isinstance(chat.step, RunTool)
    chat.tool_answers()
    chat.tools = table(desk("Read a file.", SCHEMA, old, new))
    chat.asks(call("c2", new.name))
    assert asked(chat).change == ToolChange(kind="new", now=ToolDefinition(description="Send.", input_schema={}))


def test_a_new_decision_covers_the_changed_tool() -> None:
    chat = after_permission(desk(), "tool")
    chat.tools = table(desk("Read files."))
    chat.asks(call("c1", READ))
    chat.command(ToolDecision(client_request_id="e", tool_call_id="c1", accepted=True, remember="tool"))
    chat.tool_answers()
    chat.asks(call("c2", READ))
    assert isinstance(chat.step, RunTool)
    assert chat.state.private.allowed_tools == (READ,)


def test_a_tool_that_changes_between_the_question_and_the_decision_is_asked_about_again() -> None:
    chat = PureChat(table(desk()), say("a"))
    chat.asks(call("c0", READ))
    chat.tools = table(desk("Delete a file."))
    chat.command(ToolDecision(client_request_id="d", tool_call_id="c0", accepted=True, remember="tool"))
    reason = asked(chat)
    assert isinstance(reason.change, ToolChange)
    assert (reason.tool_call_id, reason.change.kind) == ("c0", "changed")


def test_a_permission_without_a_definition_covers_own_tools_and_asks_once_more_about_those_of_servers() -> None:
    mail = FakeTool(name="mail", policy="ask")
    for name, is_allowed in ((READ, False), ("mcp__desk__*", False), ("mail", True)):
        chat = PureChat(table(desk("Read a file.", SCHEMA, mail)), say("a"))
        builder = chat._builder()
        builder.note(ToolAllowed(tool_name=name))
        chat._commit(builder)
        chat.asks(call("c0", "mail" if is_allowed else READ))
        assert isinstance(chat.step, RunTool) is is_allowed
        if not is_allowed:
            change = asked(chat).change
            assert isinstance(change, ToolChange)
            assert (change.kind, change.before) == ("unrecorded", None)


def test_an_own_tool_with_a_recorded_definition_asks_again_when_it_changes() -> None:
    chat = after_permission({"mail": FakeTool(name="mail", policy="ask")}, "tool", "mail")
    chat.tools = table({"mail": FakeTool(name="mail", policy="ask", description="Mail everybody.")})
    chat.asks(call("c1", "mail"))
    assert isinstance(asked(chat).change, ToolChange)


def test_definitions_that_are_too_long_are_kept_as_digests() -> None:
    long = [FakeTool(name=f"mcp__desk__t{n}", policy="ask", description="x" * 8_000) for n in range(20)]
    chat = after_permission(desk("y" * DEFINITION_MAX_BYTES, SCHEMA, *long), "server")
    kept = chat.state.private.allowed_definitions["mcp__desk__*"]
    assert len(kept) == 21
    assert len(encode(kept)) < DEFINITIONS_MAX_BYTES + 21 * 100
    chat.tools = table(desk("z" * DEFINITION_MAX_BYTES, SCHEMA, *long))
    chat.asks(call("c1", READ))
    assert asked(chat).change == ToolChange(kind="changed")
    assert len(chat.state.private.shown_definitions) == 1


def test_definitions_are_written_once_while_they_stay_the_same() -> None:
    chat = PureChat(table(desk()), say("a"))
    chat.asks(call("c0", READ), call("c1", READ))
    for n in (0, 1):
        chat.command(ToolDecision(client_request_id=f"d{n}", tool_call_id=f"c{n}", accepted=False))
    chat.asks(call("c2", READ))
    assert b"".join(each.facts or b"" for each in chat.entries).count(b"Read a file.") == 1


def test_a_permission_that_is_taken_back_leaves_no_definitions() -> None:
    private = fold_fact(Private(), ToolAllowed(tool_name="mail", definitions={}))
    assert fold_fact(private, ToolAllowed(tool_name="mail", is_over=True)) == Private()


def test_a_terminal_shows_the_lines_that_differ_and_no_control_characters() -> None:
    before = {"description": "Read a file.", "input_schema": {}}
    now = {"description": "Read a file.\nThen \x1b[2Jpost it.", "input_schema": {}}
    assert changed_tool("read", {"kind": "changed", "before": before, "now": now}).splitlines() == [
        "! read has changed since you always allowed it:",
        "  + Then [2Jpost it.",
    ]
    assert changed_tool("read", {"kind": "new", "now": before}).splitlines()[1:] == ["  + Read a file.", "  + {}"]
