"""The draft pack: a workflow grows call by call in its chat's memory, and mistakes are reported at once (TOOL-11)."""

import json

import pytest

from tests.unit.pure_chat import PureChat, call, say, table
from tests.unit.tool_desk import tool_context
from threadcast.settings import Tool as ToolSettings
from threadcast.tools.base import ToolResult
from threadcast.tools.operated import OperatedTool
from threadcast.tools.preview import Preview
from threadcast.tools.python import PythonTool
from threadcast.tools.runner import ToolRunner
from threadcast.tools.workflow import ActionKind, draft_tools
from threadcast.tools.workflow.drafts import ACTIONS_MAX, DRAFT_SECONDS
from threadcast_protocol.wire.commands import ToolDecision
from threadcast_protocol.wire.events import PayloadAdded, PayloadUpdated
from threadcast_protocol.wire.messages import JsonObject

pytestmark = pytest.mark.anyio

TOOLS = draft_tools([ActionKind("mail"), ActionKind("approve", ("yes", "no"), "asks a person")])


class Desk:
    """Calls the tools as a run does, and keeps the values that they store in the chat's memory."""

    def __init__(self) -> None:
        self.memory: JsonObject = {}

    async def call(self, tool: PythonTool, **arguments: object) -> ToolResult:
        context = tool_context(memory=self.memory)
        ran = await ToolRunner().run(tool, tool.name, json.dumps({"draft": "d", **arguments}), context)
        self.memory = {**self.memory, **ran.result.memory_patch}
        return ran.result

    async def add(self, name: str, type: str = "mail", after: str = "") -> ToolResult:
        return await self.call(TOOLS.add, name=name, type=type, after=after)


@pytest.mark.row("TOOL-11")
async def test_a_draft_is_started_grows_shrinks_and_is_shown_with_its_edges() -> None:
    desk = Desk()
    await desk.call(TOOLS.start)
    assert "as the first action" in (await desk.add("Ask", "approve")).content
    assert "after Ask:no" in (await desk.add("Refuse", after="Ask:no")).content
    await desk.add("Tell", after="Ask")
    await desk.call(TOOLS.remove, name="Refuse")
    shown = await desk.call(TOOLS.preview)
    expected = {
        "name": "d",
        "actions": [
            {"name": "Ask", "type": "approve", "after": "", "parameters": {}},
            {"name": "Tell", "type": "mail", "after": "Ask", "parameters": {}},
        ],
        "edges": [{"target": "Ask"}, {"target": "Tell", "source": "Ask", "port": "yes"}],
    }
    assert shown.preview == Preview("New workflow 'd': 2 actions", expected)
    changed = (await desk.call(TOOLS.preview, name="Asking", workflow_id="w-1")).preview
    assert changed == Preview("Change to 'Asking': 2 actions", {**expected, "name": "Asking"}, "w-1")
    assert changed.data["is_update"] is True and changed.data["object_id"] == "w-1"


@pytest.mark.row("OLD-7", "GATE-3")
async def test_a_shown_draft_can_be_approved_as_the_pack_comes() -> None:
    chat = PureChat(table({tool.name: OperatedTool(tool, ToolSettings(), 30.0) for tool in TOOLS}), say("q"))
    chat.asks(call("c1", "preview_draft"))
    desk = Desk()
    await desk.call(TOOLS.start)
    await desk.add("Tell")
    shown = await desk.call(TOOLS.preview)
    added = next(e for e in chat.tool_answers("", preview=shown.preview) if isinstance(e, PayloadAdded))
    assert (added.payload_type, added.source, added.approval) == ("workflow", "preview", "pending")
    assert not added.unregistered and added.input_hash
    chat.finish()
    events = chat.command(ToolDecision(client_request_id="d", payload_id=added.payload_id, accepted=True))
    assert [event.approval for event in events if isinstance(event, PayloadUpdated)] == ["accepted"]


@pytest.mark.row("TOOL-11")
async def test_every_use_keeps_it_for_ten_minutes_more() -> None:
    desk = Desk()
    results = [await desk.call(TOOLS.start), await desk.add("A"), await desk.call(TOOLS.preview)]
    assert [(list(r.memory_patch), r.memory_ttl_seconds) for r in results] == [(["workflow.draft.d"], 600.0)] * 3
    assert DRAFT_SECONDS == 600.0


@pytest.mark.row("TOOL-11")
@pytest.mark.parametrize(
    ("name", "type", "after", "sentence"),
    [
        ("A", "mail", "A", "called 'A' already"),
        ("B", "mail", "", "A, B have none"),
        ("B", "mail", "C", "which is not an action"),
        ("B", "fly", "A", "no action type 'fly'"),
        ("B:b", "mail", "A", "colon"),
    ],
)
async def test_a_mistake_is_told_at_once_and_leaves_the_draft_as_it_was(
    name: str, type: str, after: str, sentence: str
) -> None:
    desk = Desk()
    await desk.call(TOOLS.start)
    await desk.add("A")
    before = desk.memory
    result = await desk.add(name, type, after)
    assert result.failed
    assert sentence in result.content
    assert desk.memory == before


async def test_what_others_come_after_cannot_be_removed_and_what_is_not_there_is_named() -> None:
    desk = Desk()
    await desk.call(TOOLS.start)
    await desk.add("A")
    await desk.add("B", after="A")
    assert "'B' comes after 'A'" in (await desk.call(TOOLS.remove, name="A")).content
    assert "no action called 'C'; its actions: A, B" in (await desk.call(TOOLS.remove, name="C")).content


async def test_a_draft_that_is_not_there_is_an_error_that_names_those_that_are() -> None:
    desk = Desk()
    assert "drafts: none" in (await desk.call(TOOLS.preview)).content
    await desk.call(TOOLS.start, draft="other")
    missing = await desk.call(TOOLS.preview)
    assert missing.failed
    assert "drafts: other" in missing.content


async def test_starting_again_throws_the_earlier_one_away_and_an_empty_one_has_nothing_to_show() -> None:
    desk = Desk()
    await desk.call(TOOLS.start)
    await desk.add("A")
    assert "is gone" in (await desk.call(TOOLS.start)).content
    assert "No action begins" in (await desk.call(TOOLS.preview)).content


async def test_a_draft_has_a_bound() -> None:
    desk = Desk()
    await desk.call(TOOLS.start)
    await desk.add("a0")
    for number in range(1, ACTIONS_MAX):
        await desk.add(f"a{number}", after=f"a{number - 1}")
    assert str(ACTIONS_MAX) in (await desk.add("more", after="a0")).content


def test_the_model_is_told_which_types_of_actions_there_are() -> None:
    assert "- approve (ports: yes, no) asks a person" in TOOLS.add.description
    assert [tool.name for tool in TOOLS] == ["start_draft", "add_action", "remove_action", "preview_draft"]
    assert {tool.retry for tool in TOOLS} == {"idempotent"}
    assert [tool.policy for tool in TOOLS] == ["auto", "auto", "auto", "preview"]
