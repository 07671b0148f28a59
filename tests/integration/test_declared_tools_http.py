"""Tools that a message declares: the message's run offers them to the model, and a client answers their calls."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.support.reader import Watcher, watching
from tests.support.server import DEADLINE_SECONDS, command, start, user_message
from threadcast_protocol.wire.events import Ack, IdeToolRequired
from threadcast_protocol.wire.messages import JsonObject

pytestmark = [pytest.mark.anyio, pytest.mark.row("AGT-11")]

OPEN: JsonObject = {
    "name": "open_tab",
    "description": "Opens a tab of the page.",
    "input_schema": {"type": "object", "properties": {"title": {"type": "string"}}},
}
PARAMS = {"model": "demo/tools?rate=0"}
CALL = 'call open_tab {"title":"Help"}'


@asynccontextmanager
async def server(tmp_path: Path, config: str = "") -> AsyncIterator[httpx2.AsyncClient]:
    settings = tmp_path / "threadcast.toml"
    settings.write_text(config)
    with start(
        *("serve", "--port", "0", "--data-dir", str(tmp_path / "data"), "--config", str(settings)), log=tmp_path / "log"
    ) as process:
        await process.ready()
        async with httpx2.AsyncClient(base_url=process.url, timeout=DEADLINE_SECONDS) as client:
            yield client


def url_of(client: httpx2.AsyncClient) -> str:
    return str(client.base_url).rstrip("/")


def required(watcher: Watcher) -> list[IdeToolRequired]:
    return [event for event in watcher.events if isinstance(event, IdeToolRequired)]


async def answer_call(client: httpx2.AsyncClient, watcher: Watcher, number: int, chat_id: str = "c1") -> None:
    """Wait for the call with this number and answer it."""
    await watcher.until(lambda w: len(required(w)) > number)
    call = required(watcher)[number]
    assert (call.tool_name, call.args) == ("open_tab", {"title": "Help"})
    body = {"type": "ide_tool_result", "client_request_id": f"done-{number}", "tool_call_id": call.tool_call_id}
    await command(url_of(client), chat_id, {**body, "content": "The tab is open."})
    await watcher.until(lambda w: w.runs_ended > number)


async def test_a_declared_tool_is_called_answered_and_offered_again_when_the_answer_is_regenerated(
    tmp_path: Path,
) -> None:
    async with server(tmp_path) as client, watching(url_of(client), "c1") as watcher:
        await command(url_of(client), "c1", user_message("a", CALL, params=PARAMS, tools=[OPEN]))
        await answer_call(client, watcher, 0)
        assert [role for role, _ in watcher.messages] == ["user", "assistant", "tool", "assistant"]
        assert "The tab is open." in watcher.messages[-1][1]
        again = {"type": "regenerate", "client_request_id": "again", "message_id": first_answer(watcher)}
        await command(url_of(client), "c1", {**again, "model": "demo/tools?rate=0"})
        await answer_call(client, watcher, 1)
        await command(url_of(client), "c1", user_message("b", CALL, params=PARAMS))
        await watcher.until(lambda w: w.runs_ended > 2)
        assert len(required(watcher)) == 2, "a later run is not offered the tool"
        assert "open_tab" in watcher.messages[-2][1], "the model is told that there is no such tool"


OTHER: JsonObject = {**OPEN, "name": "close_tab"}

EDITS: dict[str, JsonObject] = {
    "in place": {"type": "update_message", "mode": "in_place", "regenerate": True},
    "as a branch": {"type": "update_message", "mode": "branch", "regenerate": True},
    "from its index": {"type": "retry_from_index", "index": 0},
    "from its index, for good": {"type": "retry_from_index", "index": 0, "prune": True},
}


async def edit(client: httpx2.AsyncClient, watcher: Watcher, how: str, request_id: str, **fields: object) -> None:
    """Edit the chat's first message; the edited message also calls `open_tab`."""
    assert watcher.state is not None
    body = {**EDITS[how], "client_request_id": request_id, "content": CALL, **fields}
    if body["type"] == "update_message":
        body["message_id"] = watcher.state.path[0]
    await command(url_of(client), "c1", body)


@pytest.mark.parametrize("how", EDITS)
async def test_an_edited_question_keeps_its_tools_until_an_edit_brings_others(tmp_path: Path, how: str) -> None:
    config = '[models]\ndefault = "demo/tools?rate=0"\n'
    async with server(tmp_path, config) as client, watching(url_of(client), "c1") as watcher:
        await command(url_of(client), "c1", user_message("a", CALL, tools=[OPEN]))
        await answer_call(client, watcher, 0)
        await edit(client, watcher, how, "b")
        await answer_call(client, watcher, 1)
        await edit(client, watcher, how, "c")  # the edit also keeps tools that an earlier edit has kept
        await answer_call(client, watcher, 2)
        await edit(client, watcher, how, "d", tools=[OTHER])
        await watcher.until(lambda w: w.runs_ended > 3)
        assert len(required(watcher)) == 3
        assert "open_tab" in watcher.messages[-2][1], "the model is told that there is no such tool"
        await edit(client, watcher, how, "e", tools=[OPEN])
        await answer_call(client, watcher, 3)
        await edit(client, watcher, how, "f", tools=[])
        await watcher.until(lambda w: w.runs_ended > 5)
        assert len(required(watcher)) == 4


async def test_tools_are_of_questions_only(tmp_path: Path) -> None:
    async with server(tmp_path) as client, watching(url_of(client), "c1") as watcher:
        await command(url_of(client), "c1", user_message("a", "hello", params={"model": "demo/echo"}))
        await watcher.until(lambda w: w.runs_ended > 0)
        edit = {"type": "update_message", "client_request_id": "b", "message_id": first_answer(watcher)}
        await command(url_of(client), "c1", {**edit, "content": "Better", "tools": [OPEN]})
        await watcher.until(lambda w: any(ack.client_request_id == "b" and not ack.accepted for ack in acks(w)))
        refused = next(ack for ack in acks(watcher) if ack.client_request_id == "b" and not ack.accepted)
        assert (refused.result["code"], watcher.messages[1][0]) == ("bad_request", "assistant")
        assert "only a message of the user has tools" in refused.result["error"]
        assert watcher.messages[1][1] != "Better"


def acks(watcher: Watcher) -> list[Ack]:
    return [event for event in watcher.events if isinstance(event, Ack)]


def first_answer(watcher: Watcher) -> str:
    assert watcher.state is not None
    return next(key for key in watcher.state.path if watcher.state.nodes[key].role == "assistant")


def named(name: str) -> JsonObject:
    return {**OPEN, "name": name}


@pytest.mark.parametrize(
    ("tools", "sentence", "path"),
    [
        ([named("get_payload")], "the server has a tool 'get_payload'", "/tools/0/name"),
        ([named("mcp__files__read")], "keeps the name for itself", "/tools/0/name"),
        ([OPEN, OPEN], "two tools are called 'open_tab'", "/tools/1/name"),
        ([{**OPEN, "input_schema": {"type": "array"}}], "that of an object", "/tools/0/input_schema"),
        ([{**OPEN, "description": "x" * 8_000, "name": f"t{n}"} for n in range(9)], "at most 65536 bytes", "/tools"),
        ([named(f"t{number}") for number in range(33)], "length <= 32", "/tools"),
        ([named("two words")], "matching regex", "/tools/0/name"),
        ([{"name": "bare"}], "description", "/tools/0"),
    ],
    ids=["ours", "mcp", "twice", "no object", "large", "many", "name", "no description"],
)
async def test_tools_that_cannot_be_offered_are_refused(
    tmp_path: Path, tools: list[JsonObject], sentence: str, path: str
) -> None:
    async with server(tmp_path) as client:
        answers = [await post(client, tools, **kind) for kind in KINDS]
    for refused in answers:
        assert refused.status_code == 400, refused.text
        body = refused.json()
        assert (body["code"], body["path"]) == ("bad_request", path)
        assert sentence in body["detail"]


async def test_an_operator_may_switch_such_tools_off(tmp_path: Path) -> None:
    async with server(tmp_path, "[limits]\nclient_tools = false\n") as client:
        for kind in KINDS:
            refused = await post(client, [OPEN], **kind)
            assert (refused.status_code, refused.json()["code"]) == (403, "forbidden")
            assert "limits.client_tools" in refused.json()["detail"]
        assert (await client.get("/v1/caps")).json()["limits"]["declared_tools_max_count"] == 0
        assert (await post(client, [], params=PARAMS)).status_code == 202


KINDS: list[JsonObject] = [
    {"params": PARAMS},
    {"type": "update_message", "message_id": "m1"},
    {"type": "retry_from_index", "index": 0},
]


async def post(client: httpx2.AsyncClient, tools: list[Any], **fields: object) -> httpx2.Response:
    return await client.post("/v1/chats/c1/commands", json=user_message("a", "hello", tools=tools, **fields))
