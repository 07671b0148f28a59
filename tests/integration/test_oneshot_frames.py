"""The one-shot formats as their clients read them, frame by frame over real HTTP (PROTOCOL §14)."""

import hashlib
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.integration.fake_openai import DONE, STOP, FakeOpenAI, Reply, chunk, failure, serve_fake_openai, text
from tests.integration.oneshot_client import Shown, ask
from tests.support.server import DEADLINE_SECONDS, Process, serving
from threadcast_protocol.wire.messages import JsonObject

pytestmark = pytest.mark.anyio

AGENT, PAGE = "/v1/agent/chat", "/api/chat/stream"
CHINESE = "这个问题很有意思"
TOKENS = "".join(
    f'[[auth.tokens]]\nid = "{name}"\nsha256 = "{hashlib.sha256(name.encode()).hexdigest()}"\n'
    for name in ("ann", "bob")
)
CONFIG = (
    TOKENS
    + """
[profiles.agent]
system_prompt = "The default identity."
tools = ["everywhere"]
max_rounds = 2

[profiles.agent.reply_guard]
forbid_scripts = ["Han"]

[profiles.agent.scopes."/Drug search"]
system_prompt = "You search for drugs."
tools = ["find_drug"]

[profiles.agent.scopes."/Drug search/Results 2"]
guidelines = "Name the source."
"""
)
TOOLS = """
from threadcast import Payload, Preview, ToolResult, Traits, tool


@tool(retry="safe")
def everywhere() -> str:
    "Offered everywhere."
    return "here"


@tool(retry="safe")
def find_drug(name: str) -> ToolResult:
    "Find a drug."
    return ToolResult(content="1 found", payloads=[Payload("drugs", {"names": [name]}, "1 drug")])


@tool(policy="preview", traits=Traits(payload_type="workflow", commit_tool="save"))
def propose(name: str, object_id: str | None = None) -> Preview:
    "Propose a workflow."
    return Preview(f"Workflow {name}", {"name": name}, object_id)


@tool()
def save(name: str, object_id: str | None = None) -> str:
    "Save a workflow."
    return "saved"
"""


def calls(name: str, /, **arguments: object) -> Reply:
    function = {"name": name, "arguments": json.dumps(arguments)}
    call = {"index": 0, "id": f"call_{name}", "function": function}
    return Reply([chunk(delta={"tool_calls": [call]}), chunk(finish_reason="tool_calls"), DONE])


def says(words: str) -> Reply:
    return Reply([text(words), STOP, DONE])


class Desk:
    """A server with these settings, and a model whose answers the test chooses."""

    def __init__(self, server: Process, model: FakeOpenAI) -> None:
        self.server = server
        self.model = model

    async def ask(self, path: str, *replies: Reply, who: str = "ann", **body: Any) -> Shown:  # Any: a foreign body
        self.model.asked.clear()
        self.model.replies = list(replies)
        return await ask(self.server.url, path, {"message": "x", **body}, {"Authorization": f"Bearer {who}"})

    async def post(self, path: str, who: str = "ann", **body: Any) -> httpx2.Response:  # Any: as above
        async with httpx2.AsyncClient(timeout=DEADLINE_SECONDS) as client:
            headers = {"Authorization": f"Bearer {who}", "Accept": "application/json"}
            return await client.post(self.server.url + path, json={"message": "x", **body}, headers=headers)

    async def read(self, path: str, who: str = "ann") -> JsonObject:
        async with httpx2.AsyncClient(timeout=DEADLINE_SECONDS) as client:
            answer = await client.get(self.server.url + path, headers={"Authorization": f"Bearer {who}"})
            found: JsonObject = answer.json()
            return found

    @property
    def prompt(self) -> str:
        return str(self.model.asked[-1].body["messages"][0]["content"])

    @property
    def tools(self) -> set[str]:
        return {tool["function"]["name"] for tool in self.model.asked[-1].body.get("tools", [])} - {"get_payload"}


@asynccontextmanager
async def desk(tmp_path: Path, config: str = CONFIG) -> AsyncIterator[Desk]:
    app = tmp_path / "desk_tools.py"
    app.write_text(TOOLS)
    with serve_fake_openai() as model:
        environment = {"OPENAI_BASE_URL": model.base_url, "OPENAI_API_KEY": "sk-x", "OPENAI_MODEL": "tiny"}
        async with serving(tmp_path, config=config, app=app, environment=environment) as process:
            yield Desk(process, model)


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[Desk]:
    async with desk(tmp_path) as started:
        yield started


def frames(shown: Shown) -> list[tuple[str, Any]]:  # Any: JSON of a foreign wire
    return [(frame.event, json.loads(frame.data)) for frame in shown.frames]


@pytest.mark.row("OLD-2")
async def test_the_agent_wire_frame_by_frame(tmp_path: Path) -> None:
    config = CONFIG.replace('tools = ["everywhere"]', 'tools = ["propose"]')
    async with desk(tmp_path, config) as here:
        body: JsonObject = {"context_type": "Drug_search", "conversation_id": "mine-1"}
        replies = calls("propose", name="mail", object_id="w-7"), says("Well?")
        shown = frames(await here.ask(AGENT, *replies, **body))
        payload_id = next(data["payload_id"] for event, data in shown if event == "workflow_preview")
        assert shown == [
            ("message_start", {"turn": 0, "conversation_id": "mine-1"}),
            ("tool_call_start", {"tool_use_id": "call_propose", "name": "propose"}),
            (
                "workflow_preview",
                {
                    "workflow": {"name": "mail"},
                    "workflow_id": "w-7",
                    "payload_id": payload_id,
                    "description": "Workflow mail",
                    "object": {"name": "mail"},
                    "is_update": True,
                    "object_id": "w-7",
                },
            ),
            ("tool_call_result", {"tool_use_id": "call_propose", "name": "propose", "is_error": False}),
            ("message_start", {"turn": 1, "conversation_id": "mine-1"}),
            ("content_chunk", {"chunk": "Well?"}),
            ("message_complete", {}),
        ]
        again = frames(await here.ask(AGENT, says(CHINESE), says("Well."), **body))
        assert again == [
            ("message_start", {"turn": 0, "conversation_id": "mine-1"}),
            ("content_chunk", {"chunk": CHINESE}),
            ("content_chunk", {"chunk": "[Retrying in English...]"}),
            ("message_start", {"turn": 1, "conversation_id": "mine-1"}),
            ("content_chunk", {"chunk": "Well."}),
            ("message_complete", {}),
        ]
        chat = await here.read("/v1/chats/mine-1")
        assert [m["content"] for m in chat["messages"] if m["role"] == "assistant"][-2:] == [CHINESE, "Well."]


@pytest.mark.row("OLD-2", "AUTH-2")
async def test_a_conversation_of_somebody_else_is_not_made_not_shown_and_not_changed(here: Desk) -> None:
    body: JsonObject = {"context_type": "Drug_search", "conversation_id": "mine-1"}
    await here.ask(AGENT, says("secret"), **body)
    before = await here.read("/v1/chats/mine-1")
    refused = await here.post(AGENT, "bob", **body)
    assert (refused.status_code, refused.json()["code"]) == (409, "id_taken")
    assert await here.read("/v1/chats/mine-1") == before
    # A deleted chat is not created again, and the answer to other principals does not change with the delete.
    async with httpx2.AsyncClient(base_url=here.server.url) as client:
        await client.delete("/v1/chats/mine-1", headers={"Authorization": "Bearer ann"})
    gone = await here.post(AGENT, "ann", **body)
    assert (gone.status_code, gone.json()) == (404, {"detail": "no such chat", "code": "not_found"})
    assert (await here.post(AGENT, "bob", **body)).content == refused.content


@pytest.mark.row("OLD-2", "LOOP-10")
@pytest.mark.parametrize(("said", "between"), [("retry_text = '(again)'", ["(again)"]), ("retry_text = ''", [])])
async def test_what_a_guards_retry_is_announced_with_is_the_operators_to_say(
    tmp_path: Path, said: str, between: list[str]
) -> None:
    config = CONFIG.replace('forbid_scripts = ["Han"]', f'forbid_scripts = ["Han"]\n{said}')
    async with desk(tmp_path, config) as here:
        shown = await here.ask(AGENT, says(CHINESE), says("Well."), context_type="Drug_search")
        chunks = [piece["chunk"] for piece in shown.of("content_chunk")]
        assert chunks == [CHINESE, *between, "Well."]


@pytest.mark.row("OLD-5")
async def test_the_page_wire_frame_by_frame(here: Desk) -> None:
    context = {"current_page": "/Drug search"}
    shown = await here.ask(PAGE, calls("find_drug", name="aspirin"), says("One."), context=context)
    chat_id = shown.frames[0].last_event_id
    bodies = shown.bodies
    payload_id = bodies[-1]["payload"]["custom_payload"]["payload_id"]
    assert isinstance(payload_id, str) and len(payload_id) >= 8
    called = {"tool_use_id": "call_find_drug", "input": {"name": "aspirin"}}
    assert bodies == [
        {"type": "status", "message": "queued", "conversation_id": chat_id},
        {"type": "status", "message": "generating", "conversation_id": chat_id},
        {"type": "status", "message": "Running find_drug…", "conversation_id": chat_id},
        {"type": "text_delta", "text": "[[tool:call_find_drug]]"},
        {"type": "tool_start", "tool": "find_drug", **called},
        {"type": "tool_complete", "tool": "find_drug", "index": 0},
        {"type": "status", "message": "generating", "conversation_id": chat_id},
        {"type": "text_delta", "text": "One."},
        {
            "type": "complete",
            "payload": {
                "message": "[[tool:call_find_drug]]One.",
                "suggested_values": [],
                "suggested_actions": [],
                "custom_payload": {
                    "payload_id": payload_id,
                    "type": "drugs",
                    "summary": "1 drug",
                    "data": {"names": ["aspirin"]},
                },
                "tool_history": [{"tool_name": "find_drug", **called, "status": "done", "output": "1 found"}],
                "conversation_id": chat_id,
            },
        },
    ]


@pytest.mark.row("OLD-5", "NET-9")
async def test_the_page_wire_has_one_terminal_frame_however_the_run_ends(here: Desk) -> None:
    rounds = [calls("everywhere"), calls("everywhere"), calls("everywhere")]
    limited = await here.ask(PAGE, *rounds)
    assert [body["type"] for body in limited.bodies if body["type"] in ("complete", "error", "cancelled")] == [
        "complete"
    ]
    assert limited.bodies[-1]["payload"]["failure"]["code"] == "max_tool_rounds"
    failed = await here.ask(PAGE, failure(400, {"message": "no"}))
    assert [body["type"] for body in failed.bodies] == ["status", "status", "error"]
    assert failed.bodies[-1].keys() == {"type", "code", "message", "conversation_id"}

    # An answer in JSON reports the same failure by its HTTP status.
    here.model.replies = rounds
    whole = await here.post(PAGE)
    assert (whole.status_code, whole.json()["failure"]["outcome"]) == (200, "limit")
    here.model.replies = [failure(400, {"message": "no"})]
    assert (await here.post(PAGE)).status_code == 502


@pytest.mark.row("OLD-3")
async def test_a_page_of_any_name_gets_the_nearest_place_and_never_a_refusal(here: Desk) -> None:
    drugs, source = "You search for drugs.", "Name the source."
    scopes: list[tuple[JsonObject, bool, bool]] = [
        ({}, False, False),
        ({"current_page": "/Drug search"}, True, False),
        ({"current_page": "Drug search", "active_tab": "Results 2"}, True, True),
        ({"current_page": "/Drug search/Results 2", "active_tab": 7, "subtab": "?"}, True, True),
        ({"current_page": "Drug search", "active_tab": "no such tab"}, True, False),
        ({"current_page": "/Nowhere 2", "active_tab": "Results 2"}, False, False),
        ({"current_page": 5}, False, False),
        ({"current_page": {"id": 5}, "active_tab": ["x"], "subtab": None}, False, False),
        ({"current_page": "x" * 5_000}, False, False),
    ]
    for context, has_drugs, has_source in scopes:
        shown = await here.ask(PAGE, says("ok"), context=context)
        assert shown.bodies[-1]["type"] == "complete"
        assert (drugs in here.prompt, source in here.prompt) == (has_drugs, has_source), context
        assert ("The default identity." in here.prompt) is not has_drugs
        assert ("find_drug" in here.tools) is has_drugs and "everywhere" in here.tools


@pytest.mark.row("OLD-4")
async def test_the_page_wire_takes_its_clients_words(here: Desk) -> None:
    assert (await here.post(PAGE, conversation_id=42)).status_code == 404
    await here.ask(AGENT, says("made"), context_type="Drug_search", conversation_id="42")
    spoken: dict[str, JsonObject | None] = {
        "text_input": {"type": "text"},
        "action_executed": {"type": "action_selected"},
        "value_selected": {"type": "value_selected"},
        "telepathy": {"type": "text", "data": {"interaction_type": "telepathy"}},
        "": None,
    }
    for word in spoken:
        shown = await here.ask(PAGE, says("ok"), conversation_id=42, interaction_type=word)
        assert shown.bodies[-1]["payload"]["conversation_id"] == "42"
    chat = await here.read("/v1/chats/42")
    users = [message for message in chat["messages"] if message["role"] == "user"]
    assert [message.get("interaction") for message in users[1:]] == list(spoken.values())
