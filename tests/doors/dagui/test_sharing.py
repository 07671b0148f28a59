"""Checks what a page of AG-UI shares with the server: state, questions, hidden arguments, and other callers' chats."""

from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from tests.doors.dagui.agent import opened_agent, runs_in
from tests.integration.oneshot_client import prepare
from tests.integration.server_fixtures import chat_id
from tests.support.server import DEADLINE_SECONDS, Process, serving, started_server
from tests.support.tokens import bearer, tokens
from threadcast_protocol.wire.messages import JsonObject

__all__ = ["chat_id"]

pytestmark = pytest.mark.anyio

CONFIG = """
[tools.secret]
hide_input = true

[profiles.pirate]
system_prompt = "Arr."
model = "demo/tools"
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    app = Path(__file__).with_name("tools.py")
    with started_server(tmp_path_factory.mktemp("agui"), app=app, config=CONFIG) as process:
        yield process.wait_ready()


async def test_a_tool_reads_the_state_and_changes_it(server: Process, chat_id: str) -> None:
    async with opened_agent(server.url, chat_id, mode="/pirate", state={"cart": ["map"], "name": "ann"}) as page:
        assert await page.run(words='call buy {"item": "rum"}') is None
        shown = await page.shown()
    (run,) = runs_in(shown["events"])
    assert "bought 2" in shown["messages"][-1]["content"], "the tool has read the page's state"
    assert [event for event in run if event["type"].startswith("STATE")] == [
        {"type": "STATE_SNAPSHOT", "snapshot": {"cart": ["map", "rum"], "name": "ann"}},
        {
            "type": "STATE_DELTA",
            "delta": [{"op": "remove", "path": "/name"}, {"op": "add", "path": "/paid", "value": True}],
        },
    ]
    assert shown["state"] == {"cart": ["map", "rum"], "paid": True}
    (activity,) = [message for message in shown["messages"] if message["role"] == "activity"]
    assert activity["content"]["stage"] == "paying" and activity["activityType"] == "threadcast.tool_progress"
    (receipt,) = [event["value"] for event in run if event["type"] == "CUSTOM"]
    assert receipt["data"] == {"items": ["map", "rum"]} and receipt["payload_type"] == "receipt"
    async with opened_agent(server.url, chat_id) as page:
        assert await page.run() is None
        assert (await page.shown())["state"] == shown["state"], "a page that loads has the newest state"


async def test_a_question_of_a_tool_is_an_interrupt(server: Process, chat_id: str) -> None:
    async with opened_agent(server.url, chat_id, mode="/pirate") as page:
        assert await page.run(words="call which {}") is None
        shown = await page.shown()
        (asked,) = shown["interrupts"]
        assert (asked["message"], asked["responseSchema"]["enum"]) == ("Which?", ["left", "right"])
        answer = {"interruptId": asked["id"], "status": "resolved", "payload": "left"}
        wrong = await page.run(resume=[{**answer, "payload": "up"}])
        shown = await page.shown()
        assert wrong is None and shown["interrupts"] == [asked], "an answer that does not fit leaves it open"
        assert await page.run(resume=[answer]) is None
        shown = await page.shown()
    runs_in(shown["events"])
    assert "the answer is left" in shown["messages"][-1]["content"] and shown["interrupts"] == []


async def test_hidden_arguments_never_leave(server: Process, chat_id: str) -> None:
    async with opened_agent(server.url, chat_id, mode="/pirate") as page:
        assert await page.run(words='call secret {"word": "hidden-word"}') is None
        shown = await page.shown()
        (asked,) = shown["interrupts"]
        assert asked["metadata"]["threadcast"]["arguments"] == {}
        resume = [{"interruptId": asked["id"], "status": "resolved", "payload": {"approved": True}}]
        assert await page.run(resume=resume) is None
        shown = await page.shown()
    mine = [message for message in shown["messages"] if message["role"] != "user"]
    assert "hidden-word" not in str([event for event in shown["events"] if event["type"].startswith("TOOL")])
    assert mine[0]["toolCalls"][0]["function"]["arguments"] == "{}"


async def test_another_callers_chat_is_like_one_that_never_existed(tmp_path: Path) -> None:
    config = tokens(ann='permissions = ["approve"]', bob='permissions = ["approve"]', eve="permissions = []")
    async with serving(tmp_path, config=config + CONFIG, app=Path(__file__).with_name("tools.py")) as server:
        async with opened_agent(server.url, "annes", mode="/pirate", headers=bearer("ann")) as page:
            assert await page.run(words="call secret {}") is None
            (asked,) = (await page.shown())["interrupts"]
        yes = [{"interruptId": asked["id"], "status": "resolved", "payload": {"approved": True}}]
        async with opened_agent(server.url, "annes", headers=bearer("bob")) as page:
            assert await page.run(resume=yes) is None
            shown = await page.shown()
            assert shown["messages"] == [] and shown["interrupts"] == []
            assert (await page.run(words="x"))["payload"]["code"] == "id_taken"
        for thread_id in ("annes", "no such thread"):
            async with opened_agent(server.url, thread_id, headers=bearer("eve")) as page:
                assert await page.run() is None
                events = [{**event, "threadId": "", "runId": ""} for event in (await page.shown())["events"]]
                assert [event["type"] for event in events] == ["RUN_STARTED", "MESSAGES_SNAPSHOT", "RUN_FINISHED"]
        async with opened_agent(server.url, "eves", mode="/pirate", headers=bearer("eve")) as page:
            assert await page.run(words="call secret {}") is None
            (asked,) = (await page.shown())["interrupts"]
            yes = [{"interruptId": asked["id"], "status": "resolved", "payload": {"approved": True}}]
            assert (await page.run(resume=yes))["status"] == 403, "eve may not approve"
        async with opened_agent(server.url, "x") as page:
            refused = await page.run(words="x")
            assert (refused["status"], refused["payload"]["type"]) == (401, "RUN_ERROR")


async def test_a_request_that_is_too_large_or_too_long_is_refused(server: Process) -> None:
    body: JsonObject = {"threadId": "t", "runId": "r", "messages": []}
    wrong: list[tuple[JsonObject, str]] = [
        ({"threadId": "x" * 513}, "/threadId"),
        ({"messages": [{"id": "m", "role": "user"}] * 10_001}, "/messages"),
        ({"resume": [{"interruptId": "i", "status": "resolved"}] * 101}, "/resume"),
        ({"context": [{"description": "", "value": ""}] * 101}, "/context"),
        ({"tools": [{"name": "not a name", "description": ""}]}, "/tools/0/name"),
    ]
    async with httpx2.AsyncClient(base_url=server.url, timeout=DEADLINE_SECONDS) as client:
        for change, path in wrong:
            refused = await client.post("/ag-ui", json=body | change)
            assert (refused.status_code, refused.json()["path"]) == (400, path)
            assert refused.json()["type"] == "RUN_ERROR"


async def test_a_client_before_1_0_gets_the_outcomes_that_it_knows(server: Process, chat_id: str) -> None:
    await prepare(server, chat_id, "demo/echo")
    body = {"threadId": chat_id, "runId": "r", "messages": [{"id": "m", "role": "user", "content": "x"}]}
    async with httpx2.AsyncClient(base_url=server.url, timeout=DEADLINE_SECONDS) as client:
        old = (await client.post("/ag-ui", json=body)).text
        new = (await client.post("/ag-ui", json={**body, "protocolVersion": "1.0"})).text
    assert "protocolVersion" not in old and "outcome" not in old and "RUN_FINISHED" in old
    assert '"protocolVersion":"1.0"' in new and '"outcome":{"type":"success"}' in new


async def test_a_new_message_during_a_pause_is_refused(server: Process, chat_id: str) -> None:
    async with opened_agent(server.url, chat_id, mode="/pirate") as page:
        assert await page.run(words="call secret {}") is None
        messages = await page.messages()
    async with opened_agent(server.url, chat_id, messages=messages) as page:
        refused = await page.run(words="meanwhile")
        assert (refused["status"], refused["payload"]["code"]) == (409, "conflict")


async def test_an_agent_of_the_operator_answers_under_its_name(tmp_path: Path) -> None:
    app = tmp_path / "app.py"
    app.write_text(
        "from threadcast import Round, agent\n\n\n@agent('parrot')\nasync def parrot(round: Round):\n"
        "    yield 'I repeat.'\n"
    )
    async with serving(tmp_path, app=app) as server, opened_agent(server.url, "c", mode="/parrot") as page:
        assert await page.run(words="x") is None
        assert [message["content"] for message in await page.messages()] == ["x", "I repeat."]
