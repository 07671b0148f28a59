"""Guesses of ids: no caller can learn by reading whether another caller has a chat with an id, or get such a chat."""

import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import httpx2
import pytest

from tests.support.reader import watching
from tests.support.server import Process, command, start, user_message
from tests.support.tokens import bearer, tokens
from threadcast.api.operation import Endpoint
from threadcast.routes import all_endpoints
from threadcast_protocol.wire.messages import JsonObject

pytestmark = [pytest.mark.anyio, pytest.mark.row("SEC-11")]

DEADLINE_SECONDS = 30.0
PERMISSIONS = 'permissions = ["approve", "diagnostics"]'

LIVE, DELETED, UNKNOWN = "ann-s-live-chat", "ann-s-gone-chat", "nobody-s-chat-x"
"""Ids of the same length, so that answers which contain an id can be compared."""
assert len(LIVE) == len(DELETED) == len(UNKNOWN)

CREATING: list[JsonObject] = [
    user_message("c1", "mine?"),
    {"type": "set_params", "client_request_id": "c2", "patch": {"title": "x"}},
    {"type": "retry_from_index", "client_request_id": "c3", "index": 0, "content": "x"},
    {"type": "restore_messages", "client_request_id": "c4", "messages": []},
    {"type": "branch_from_chat", "client_request_id": "c5", "source_chat_id": "s", "up_to_message_id": "m"},
]

AI_SDK: JsonObject = {
    "id": "{chat_id}",
    "messages": [{"id": "m", "role": "user", "parts": [{"type": "text", "text": "x"}]}],
}
"""A request body for the door of the AI SDK."""

AG_UI: JsonObject = {"threadId": "{chat_id}", "runId": "r", "messages": [], "tools": [], "state": {}}
"""A request body for the door of AG-UI."""

MCP: list[JsonObject] = [
    {"method": "resources/read", "params": {"uri": "threadcast://chats/{chat_id}"}},
    *(
        {"method": "tools/call", "params": {"name": name, "arguments": {"chat_id": "{chat_id}", **more}}}
        for name, more in (("read_chat", {}), ("decide", {"tool_call_id": "x", "accepted": True}))
    ),
]
"""Requests to the door of MCP."""

RESPONSE = "/v1/responses/resp_s" + "0" * 24 + "_{chat_id}"
RESULT: JsonObject = {"type": "function_call_output", "call_id": "call_1@{chat_id}", "output": "x"}
TOOL_MESSAGE: JsonObject = {"role": "tool", "tool_call_id": "call_1@{chat_id}", "content": "x"}
OPENAI: list[tuple[str, str, JsonObject]] = [
    ("GET", RESPONSE, {}),
    ("GET", RESPONSE + "?stream=true&starting_after=1", {}),
    ("GET", RESPONSE + "/input_items", {}),
    ("POST", RESPONSE + "/cancel", {}),
    ("DELETE", RESPONSE, {}),
    ("GET", "/v1/conversations/{chat_id}", {}),
    ("DELETE", "/v1/conversations/{chat_id}", {}),
    ("POST", "/v1/responses", {"json": {"input": "x", "conversation": "{chat_id}"}}),
    ("POST", "/v1/responses", {"json": {"input": [RESULT]}}),
    ("POST", "/v1/responses", {"json": {"input": [RESULT], "store": False}}),
    ("POST", "/v1/chat/completions", {"json": {"messages": [TOOL_MESSAGE]}}),
    ("POST", "/v1/chat/completions", {"json": {"messages": [TOOL_MESSAGE], "metadata": {"chat_id": "{chat_id}"}}}),
]
"""Requests to the doors of OpenAI's formats that read or continue a chat."""

LARGE = "x" * 100_000
"""A text that the server stores as a blob of the chat, before it posts the command."""

OTHERS: list[JsonObject] = [
    {"type": "abort", "client_request_id": "o1"},
    {"type": "regenerate", "client_request_id": "o2"},
    {"type": "update_message", "client_request_id": "o3", "message_id": "m", "content": LARGE},
    {"type": "remove_message", "client_request_id": "o4", "message_id": "m"},
    {"type": "select_branch", "client_request_id": "o5", "message_id": "m"},
    {"type": "tool_decision", "client_request_id": "o6", "tool_call_id": "c", "accepted": True},
    {"type": "ide_tool_result", "client_request_id": "o7", "tool_call_id": "c", "content": LARGE},
    {"type": "edit_queued", "client_request_id": "o8", "target": "c1", "content": "x"},
    {"type": "continue_message", "client_request_id": "o9", "message_id": "m"},
]


@asynccontextmanager
async def guarded(directory: Path) -> AsyncIterator[tuple[Process, httpx2.AsyncClient]]:
    """Yield a server for ann and bob, and a client for bob. On the server ann has one chat, and has deleted another
    chat."""
    (directory / "threadcast.toml").write_text(tokens(ann=PERMISSIONS, bob=PERMISSIONS))
    arguments = ("serve", "--memory", "--port", "0", "--config", str(directory / "threadcast.toml"))
    with start(*arguments, log=directory / "log") as server:
        await server.ready()
        for chat_id in (LIVE, DELETED):
            async with watching(server.url, chat_id, headers=bearer("ann")) as watcher:
                await command(server.url, chat_id, user_message("a", "ann's secret"), bearer("ann"))
                await watcher.at_rest()
        async with httpx2.AsyncClient(base_url=server.url, timeout=DEADLINE_SECONDS, headers=bearer("bob")) as bob:
            gone = await bob.delete(f"/v1/chats/{DELETED}", headers=bearer("ann"))
            assert gone.status_code == 200
            yield server, bob


def seen(answer: httpx2.Response, chat_id: str) -> tuple[object, ...]:
    """Return everything that distinguishes one answer from another, without the time and the requested id."""
    headers = [(name, value) for name, value in answer.headers.multi_items() if name != "date"]
    return answer.status_code, answer.content.replace(chat_id.encode(), b"ID"), headers


def reads_of_chats() -> list[tuple[str, str]]:
    """Return the method and path of every endpoint with a chat's id in its path, except those that create something. An
    endpoint that is added later is tested, too."""
    made = {"post_command", "upload_blob"}
    found = [
        (method, re.sub(r"\{(\w+)(:\w+)?\}", r"{\1}", route.path))
        for route in all_endpoints()
        if isinstance(route, Endpoint) and "{chat_id" in route.path and route.endpoint.__name__ not in made
        for method in sorted(route.methods or ())
    ]
    assert len(found) > 12
    return found


async def test_every_route_answers_a_foreign_a_deleted_and_an_unknown_chat_alike(tmp_path: Path) -> None:
    async with guarded(tmp_path) as (_, bob):
        blob = await bob.post(f"/v1/chats/{LIVE}/blobs", content=b"ann's bytes", headers=bearer("ann"))
        rest = {"hash": blob.json()["hash"], "run_id": "run_1", "client_request_id": "a", "tool_name": "clock"}
        requests: list[tuple[str, str, JsonObject]] = [
            (method, path, {"json": {"typing": True}} if path.endswith("/typing") else {})
            for method, path in reads_of_chats()
        ]
        requests += [
            ("GET", "/v1/chats/{chat_id}", {"params": {"view": "tree"}}),
            ("GET", "/v1/chats/{chat_id}", {"params": {"at": "1"}}),
            ("GET", "/v1/chats", {"params": {"parent_id": "{chat_id}"}}),
            ("GET", "/v1/chats/{chat_id}/blobs/{hash}", {"headers": {"If-None-Match": f'"{rest["hash"]}"'}}),
            *(("POST", "/v1/chats/{chat_id}/commands", {"json": body}) for body in OTHERS),
            *(
                ("POST", "/v1/chats/{chat_id}/commands", {"json": body, "headers": {"Prefer": "wait=1"}})
                for body in OTHERS
            ),
            *(("POST", "/v1/chats/{chat_id}/commands", {"json": body}) for body in ({"type": "abort"}, {"type": "x"})),
        ]
        requests += [
            ("POST", "/chat", {"json": {"session_id": "{chat_id}", "message": "x"}}),
            ("POST", "/ai-sdk/chat", {"json": {**AI_SDK, "trigger": "regenerate-message"}}),
            (
                "POST",
                "/ai-sdk/chat",
                {"json": {**AI_SDK, "messages": [{**AI_SDK["messages"][0], "role": "assistant"}]}},
            ),
            ("POST", "/ag-ui", {"json": AG_UI}),
            *OPENAI,
            *(("POST", "/mcp", {"json": {"jsonrpc": "2.0", "id": 1, **body}}) for body in MCP),
            ("POST", "/ag-ui/agent", {"json": {**AG_UI, "resume": [{"interruptId": "i", "status": "cancelled"}]}}),
            ("POST", "/api/chat/stream", {"json": {"conversation_id": "{chat_id}", "message": "x"}}),
        ]
        before = (await bob.get(f"/v1/chats/{LIVE}", headers=bearer("ann"))).json()
        for method, path, more in requests:
            answers = {}
            for chat_id in (UNKNOWN, LIVE, DELETED):
                filled = json.loads(json.dumps(more).replace("{chat_id}", chat_id))
                answer = await bob.request(method, path.format(chat_id=chat_id, **rest), **filled)
                assert answer.status_code != 500
                answers[chat_id] = seen(answer, chat_id)
            assert answers[LIVE] == answers[UNKNOWN] == answers[DELETED], (method, path, more)
        assert (await bob.get(f"/v1/chats/{LIVE}", headers=bearer("ann"))).json() == before


async def first_bytes(bob: httpx2.AsyncClient, chat_id: str, query: str) -> tuple[object, ...]:
    """Return what the beginning of a stream shows: its status, headers, and bytes up to the first heartbeat."""
    async with bob.stream("GET", f"/v1/chats/subscribe?chat_id={chat_id}{query}") as answer:
        text = ""
        with anyio.fail_after(DEADLINE_SECONDS):
            async for piece in answer.aiter_text():
                text += piece
                if ": hb" in text or ("presence" in text and query):
                    break
        headers = [(name, value) for name, value in answer.headers.multi_items() if name != "date"]
        shown = re.sub(r"(: hb) \d+", r"\1", text.partition(": hb")[0]).replace(chat_id, "ID")
        return answer.status_code, headers, shown


@pytest.mark.parametrize("query", ["", "&from=1-1-0", "&from=0-0-0", "&blobs=inline"])
async def test_a_stream_of_a_foreign_chat_begins_like_that_of_an_unknown_one(tmp_path: Path, query: str) -> None:
    async with guarded(tmp_path) as (_, bob):
        unknown = await first_bytes(bob, UNKNOWN, query)
        assert unknown[0] == 200
        for chat_id in (LIVE, DELETED):
            assert await first_bytes(bob, chat_id, query) == unknown


async def test_nothing_of_a_foreign_chats_life_shows_on_a_stream_that_waits_for_it(tmp_path: Path) -> None:
    """Bob subscribes to chats that ann already has, creates, changes and deletes, and his stream shows only his own
    chat."""
    made_later, bobs = "ann-makes-later", "bob-s-own-chat-"
    async with guarded(tmp_path) as (server, bob), anyio.create_task_group() as tasks:
        frames: list[str] = []
        changed = anyio.Event()
        ids = [LIVE, DELETED, UNKNOWN, made_later, bobs]
        query = "&".join(f"chat_id={chat_id}" for chat_id in ids)

        async def read() -> None:
            nonlocal changed
            async with bob.stream("GET", f"/v1/chats/subscribe?{query}&stream_id=s1&presence=1") as answer:
                async for line in answer.aiter_lines():
                    if line.startswith("data: "):
                        frames.append(line)
                        changed.set()
                        changed = anyio.Event()
            frames.append("the end")

        async def until(text: str, count: int = 1) -> None:
            with anyio.fail_after(DEADLINE_SECONDS):
                while sum(text in line for line in frames) < count:
                    await changed.wait()

        tasks.start_soon(read)
        await until('"type":"snapshot"', len(ids))
        async with watching(server.url, made_later, headers=bearer("ann")) as watcher:
            await command(server.url, made_later, user_message("a", "ann's secret"), bearer("ann"))
            await watcher.at_rest()
            await bob.post(f"/v1/chats/{made_later}/typing", json={"typing": True}, headers=bearer("ann"))
        await command(server.url, LIVE, user_message("b", "ann's secret"), bearer("ann"))
        for chat_id in (made_later, LIVE):
            assert (await bob.delete(f"/v1/chats/{chat_id}", headers=bearer("ann"))).status_code == 200
        for chat_id in (LIVE, made_later, UNKNOWN):
            body = {"add": [{"chat_id": chat_id}], "remove": [chat_id]}
            assert (await bob.post("/v1/streams/s1", json=body)).status_code == 200
        await until('"type":"chat_removed"', 3)
        await until('"type":"snapshot"', len(ids) + 3)
        await command(server.url, bobs, user_message("b", "hello"), bearer("bob"))
        await until('"outcome":"complete"')
        kinds = {
            chat_id: [json.loads(line[6:])["type"] for line in frames if chat_id in line and '"presence"' not in line]
            for chat_id in ids
        }
        assert kinds[DELETED] == ["snapshot"]
        assert kinds[UNKNOWN] == kinds[LIVE] == kinds[made_later] == ["snapshot", "chat_removed", "snapshot"]
        assert "secret" not in "".join(frames)
        assert "the end" not in frames
        tasks.cancel_scope.cancel()


async def test_a_taken_id_is_refused_with_advice_by_everything_that_creates_chats(tmp_path: Path) -> None:
    async with guarded(tmp_path) as (server, bob):
        exported = (await bob.get(f"/v1/chats/{LIVE}/export", headers=bearer("ann"))).content
        for chat_id in (LIVE, DELETED):
            answers = [await command(server.url, chat_id, body, bearer("bob")) for body in CREATING]
            answers.append(await command(server.url, chat_id, user_message("c9", LARGE), bearer("bob")))
            answers.append(await bob.post(f"/v1/chats/{chat_id}/blobs", content=b"bytes"))
            agent = {"conversation_id": chat_id, "message": "x", "context_type": "any"}
            answers.append(await bob.post("/v1/agent/chat", json=agent))
            completions = {"messages": [{"role": "user", "content": "x"}], "metadata": {"chat_id": chat_id}}
            refused = await bob.post("/v1/chat/completions", json=completions)
            told = refused.json()["error"]
            assert (refused.status_code, told["code"], told["param"]) == (409, "id_taken", "metadata.chat_id")
            assert "128 random bits" in told["message"]
            for answer in answers:
                assert (answer.status_code, answer.json()["code"]) == (409, "id_taken"), answer.text
                assert "128 random bits" in answer.json()["detail"]
            report = (
                await bob.post("/v1/chats/import", content=exported.replace(LIVE.encode(), chat_id.encode()))
            ).json()
            assert [each["code"] for each in report["failed"]] == ["id_taken"]
        # For ann the deleted id still answers 410, until she imports the chat again.
        refused = await command(server.url, DELETED, user_message("d", "x"), bearer("ann"))
        assert (refused.status_code, refused.json()["code"]) == (404, "not_found")
        restored = exported.replace(LIVE.encode(), DELETED.encode())
        answer = await bob.post("/v1/chats/import", content=restored, headers=bearer("ann"))
        assert answer.json()["imported"] == [DELETED]
        again = await command(server.url, DELETED, user_message("e", "x"), bearer("bob"))
        assert again.json()["code"] == "id_taken"
