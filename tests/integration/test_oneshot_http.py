"""The one-shot endpoints over real HTTP: their frames, refusals before the stream, and the OpenAI SDK."""

import signal
from pathlib import Path

import anyio
import httpx2
import openai
import pytest

from tests.integration.oneshot_client import PATHS, ask, body_for, opened, prepare
from tests.support.reader import watching
from tests.support.server import Process, command, serving
from threadcast_protocol.wire.messages import JsonObject

pytestmark = pytest.mark.anyio

USER: JsonObject = {"role": "user", "content": "x"}
SYSTEM: JsonObject = {"role": "system", "content": "be brief"}
MAKES_CHAT = ("/v1/agent/chat", "/v1/chat/completions")  # OLD-2
CALC = 'call calculator {"expression":"6*7"}'


def one_body_for(path: str, text: str, chat_id: str | None = None) -> JsonObject:
    """Make a request in that format for one JSON body."""
    return {key: value for key, value in body_for(path, text, chat_id).items() if key != "stream"}


@pytest.mark.row("SES-1", "NET-2", "NET-8")
@pytest.mark.parametrize("path", PATHS)
async def test_without_a_chat_a_new_one_answers_and_its_id_stands_in_the_first_and_last_frame(
    server: Process, client: httpx2.AsyncClient, path: str
) -> None:
    shown = await ask(server.url, path, body_for(path, "hello"))
    chat_id = shown.frames[0].last_event_id
    assert chat_id and shown.frames[-1].last_event_id == chat_id
    assert chat_id in shown.frames[0].data
    for name, value in {
        "content-type": "text/event-stream",
        "cache-control": "no-cache",
        "x-accel-buffering": "no",
        "connection": "keep-alive",
    }.items():
        assert shown.headers[name] == value
    chat = (await client.get(f"/v1/chats/{chat_id}")).json()
    assert [(m["role"], m["content"]) for m in chat["messages"]] == [
        ("user", "hello"),
        ("assistant", "You said: hello"),
    ]
    again = await ask(server.url, path, body_for(path, "again", chat_id))
    assert again.frames[-1].last_event_id == chat_id


@pytest.mark.row("SES-1")
@pytest.mark.parametrize("path", [path for path in PATHS if path not in MAKES_CHAT])
async def test_an_unknown_chat_is_404_before_any_stream(server: Process, chat_id: str, path: str) -> None:
    async with opened(server.url, path, body_for(path, "hi", chat_id)) as answer:
        assert answer.status_code == 404
        assert answer.headers["content-type"] == "application/json"
        assert (await answer.aread()).startswith(b'{"detail"')


@pytest.mark.row("EVT-1")
async def test_chat_sends_raw_text_tools_and_always_done(server: Process, chat_id: str) -> None:
    await prepare(server, chat_id, "demo/tools")
    shown = await ask(server.url, "/chat", {"message": f"{CALC}\ncall fail", "session_id": chat_id})
    assert shown.of("tool_status") == [
        {"tool": "calculator", "status": "calling"},
        {"tool": "calculator", "status": "done"},
        {"tool": "fail", "status": "calling"},
        {"tool": "fail", "status": "error"},
    ]
    assert [error["code"] for error in shown.of("error")] == ["tool_error"]
    assert shown.events[0] == "session" and shown.events[-1] == "done"
    assert shown.of("done") == [{"session_id": chat_id}]
    assert shown.text().startswith("I will use calculator, fail.The tools have answered.\n\n- calculator: 42")
    assert "a private detail" not in str(shown.frames)


async def test_chat_tells_a_failed_run_and_is_done(server: Process, chat_id: str) -> None:
    await prepare(server, chat_id, "demo/error?after=3&rate=0")
    shown = await ask(server.url, "/chat", {"message": "x", "session_id": chat_id})
    assert shown.text() and [error["code"] for error in shown.of("error")] == ["stream_error"]
    assert shown.events.count("done") == 1 and shown.events[-1] == "done"


async def test_agent_chat_shows_turns_calls_and_results(server: Process, chat_id: str) -> None:
    await prepare(server, chat_id, "demo/tools")
    body = {**body_for("/v1/agent/chat", CALC, chat_id), "context_type": ["shop", "orders"], "context": {"order": 7}}
    async with watching(server.url, chat_id) as watcher:
        shown = await ask(server.url, "/v1/agent/chat", body)
        await watcher.at_rest()
    assert watcher.state is not None
    user = watcher.state.nodes[watcher.state.path[0]]
    assert user.context == {"order": 7}
    kinds = [event for at, event in enumerate(shown.events) if event != (["", *shown.events])[at]]
    assert kinds == [
        "message_start",
        "content_chunk",
        "tool_call_start",
        "tool_call_result",
        "message_start",
        "content_chunk",
        "message_complete",
    ]
    assert [start["turn"] for start in shown.of("message_start")] == [0, 1]
    (begun,), (result,) = shown.of("tool_call_start"), shown.of("tool_call_result")
    assert begun == {"tool_use_id": result["tool_use_id"], "name": "calculator"} and result["is_error"] is False
    assert shown.of("message_complete") == [{}]
    said = "".join(piece["chunk"] for piece in shown.of("content_chunk"))
    assert said == "".join(str(m.content) for m in watcher.state.nodes.values() if m.role == "assistant")


async def test_agent_chat_ends_with_its_error_and_nothing_after_it(server: Process, chat_id: str) -> None:
    await prepare(server, chat_id, "demo/error?after=3&rate=0")
    shown = await ask(server.url, "/v1/agent/chat", body_for("/v1/agent/chat", "x", chat_id))
    assert shown.events[-1] == "error" and shown.events.count("error") == 1
    assert "message_complete" not in shown.events
    await prepare_limit(server, chat_id)
    limited = await ask(server.url, "/v1/agent/chat", body_for("/v1/agent/chat", CALC, chat_id))
    assert limited.events[-1] == "error" and limited.events.count("error") == 1


async def prepare_limit(server: Process, chat_id: str) -> None:
    patch = {"model": "demo/tools?rounds=9", "max_rounds": 1, "on_limit": "stop"}
    await command(server.url, chat_id, {"type": "set_params", "client_request_id": "limit", "patch": patch})


@pytest.mark.row("FE-8", "CMD-18")
async def test_page_chat_marks_calls_in_its_text_and_ends_with_the_whole_payload(server: Process, chat_id: str) -> None:
    await prepare(server, chat_id, "demo/tools")
    body = {
        **body_for("/api/chat/stream", f'{CALC}\ncall countdown {{"start":2,"interval_seconds":0}}', chat_id),
        "context": {"current_page": "shop", "active_tab": "orders", "subtab": "open"},
        "interaction_type": "action_selected",
    }
    async with watching(server.url, chat_id) as watcher:
        shown = await ask(server.url, "/api/chat/stream", body)
        await watcher.at_rest()
    assert watcher.state is not None
    user, first, *_, last = (watcher.state.nodes[key] for key in watcher.state.path)
    assert user.interaction == {"type": "action_selected"}
    assert user.context == {"current_page": "shop", "active_tab": "orders", "subtab": "open"}
    one, two = (call.id for call in first.tool_calls)
    payload = shown.bodies[-1]["payload"]
    assert payload["message"] == f"{first.content}[[tool:{one}]][[tool:{two}]]{last.content}"
    assert payload["message"] == "".join(frame["text"] for frame in shown.bodies if frame["type"] == "text_delta")
    assert "[[tool:" not in str(first.content) + str(last.content)  # only this format has the field
    assert [(t["tool_name"], t["output"], t["status"]) for t in payload["tool_history"]] == [
        ("calculator", "42", "done"),
        ("countdown", "Counted down from 2.", "done"),
    ]
    assert {
        "tool": "calculator",
        "input": {"expression": "6*7"},
        "tool_use_id": one,
        "type": "tool_start",
    } in shown.bodies
    assert [b["index"] for b in shown.bodies if b["type"] == "tool_complete"] == [0, 1]
    assert any(b["type"] == "tool_progress" and b["tool"] == "countdown" for b in shown.bodies)
    assert payload["conversation_id"] == chat_id
    trace = payload["diagnostics"]  # the local caller may see the traces
    assert trace["params"]["scope"] == ["shop", "orders", "open"]
    assert trace["outcome"] == "complete" and [len(each["tool_runs"]) for each in trace["rounds"]] == [2, 0]
    assert payload["suggested_values"] == [] and payload["suggested_actions"] == []


async def test_page_chat_says_cancelled_when_somebody_aborts_the_run(server: Process, chat_id: str) -> None:
    await prepare(server, chat_id, "demo/hang")
    async with watching(server.url, chat_id) as watcher, anyio.create_task_group() as tasks:

        async def read() -> None:
            shown = await ask(server.url, "/api/chat/stream", body_for("/api/chat/stream", "x", chat_id))
            assert [body["type"] for body in shown.bodies][-1] == "cancelled"

        tasks.start_soon(read)
        await watcher.until(lambda w: "stream_started" in w.types())
        await command(server.url, chat_id, {"type": "abort", "client_request_id": "stop"})


@pytest.mark.parametrize(
    ("path", "body", "pointer"),
    [
        ("/chat", {}, None),
        ("/chat", {"message": 7}, "/message"),
        ("/chat", {"message": "   "}, None),
        ("/chat", {"message": "x", "session_id": "no/id"}, "/session_id"),
        ("/chat", {"message": "x", "on_disconnect": "explode"}, "/on_disconnect"),
        ("/chat?on_disconnect=explode", {"message": "x"}, "/on_disconnect"),
        ("/v1/agent/chat", {"message": "x"}, None),
        ("/v1/agent/chat", {"message": "x", "context_type": ["a", "b", "c", "d"]}, "/context_type"),
        ("/v1/agent/chat", {"message": "x", "context_type": "no such scope"}, "/context_type"),
        ("/v1/agent/chat", {"message": "x", "context_type": []}, "/context_type"),
        ("/v1/agent/chat", {"message": "x", "context_type": "a", "conversation_id": "no/id"}, "/conversation_id"),
        ("/api/chat/stream", {"message": "x", "interaction_type": 5}, "/interaction_type"),
        ("/api/chat/stream", {"message": "x", "conversation_id": 5.5}, "/conversation_id"),
    ],
)
async def test_a_bad_body_or_scope_is_400_json_before_any_stream(
    server: Process, client: httpx2.AsyncClient, path: str, body: JsonObject, pointer: str | None
) -> None:
    answer = await client.post(server.url + path, json=body)
    assert answer.status_code == 400, answer.text
    assert answer.json()["code"] in ("bad_request", "invalid_content")
    assert pointer is None or answer.json()["path"].startswith(pointer)
    broken = await client.post(server.url + path, content=b"{", headers={"content-type": "application/json"})
    assert broken.status_code == 400


@pytest.mark.row("NET-9")
@pytest.mark.parametrize("path", PATHS)
async def test_accept_json_gives_the_final_payload_as_one_body(
    server: Process, client: httpx2.AsyncClient, path: str
) -> None:
    # In OpenAI's format `stream` alone decides, because OpenAI's clients send this header with every request.
    answer = await client.post(
        server.url + path, json=one_body_for(path, "hello"), headers={"Accept": "application/json"}
    )
    assert answer.status_code == 200 and answer.headers["content-type"] == "application/json"
    body = answer.json()
    match path:
        case "/chat":
            assert body["text"] == "You said: hello" and body["session_id"]
        case "/v1/agent/chat" | "/api/chat/stream":
            assert body["message"] == "You said: hello" and body["conversation_id"]
        case _:
            assert body["object"] == "chat.completion" and body["metadata"]["chat_id"]


@pytest.mark.row("NET-9")
@pytest.mark.parametrize("path", PATHS)
async def test_a_failed_run_as_json_has_a_status_that_says_so(
    server: Process, client: httpx2.AsyncClient, chat_id: str, path: str
) -> None:
    await prepare(server, chat_id, "demo/error?after=3&rate=0")
    body, accept = one_body_for(path, "x", chat_id), {"Accept": "application/json"}
    answer = await client.post(server.url + path, json=body, headers=accept)
    assert answer.status_code == 502
    assert "stream_error" in answer.text


async def test_the_openai_sdk_streams_text_tools_and_usage(server: Process, chat_id: str) -> None:
    await prepare(server, chat_id, "demo/tools")
    async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:
        stream = await client.chat.completions.create(
            model="demo/tools",
            messages=[{"role": "user", "content": CALC}],
            metadata={"chat_id": chat_id},
            stream=True,
            stream_options={"include_usage": True},
        )
        chunks = [chunk async for chunk in stream]
    deltas = [chunk.choices[0].delta for chunk in chunks if chunk.choices]
    said = "".join(delta.content or "" for delta in deltas)
    assert said.startswith("I will use calculator.\n\nThe tools have answered.") and said.endswith("42")
    assert not any(delta.tool_calls for delta in deltas)  # the server runs these calls
    assert [c.choices[0].finish_reason for c in chunks if c.choices and c.choices[0].finish_reason] == ["stop"]
    assert chunks[-1].usage is not None and chunks[-1].usage.total_tokens > 0
    assert len({chunk.id for chunk in chunks}) == 1


async def test_the_openai_sdk_gets_one_completion_reasoning_and_clear_errors(server: Process) -> None:
    async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none") as client:
        done = await client.chat.completions.create(
            model="demo/reasoning?words=5&rate=0",
            messages=[
                {"role": "system", "content": "x"},
                {"role": "user", "content": [{"type": "text", "text": "hi"}]},
            ],
            temperature=0.5,
        )
        message = done.choices[0].message
        assert message.content and len(message.content.split()) == 5
        assert str(getattr(message, "reasoning_content", "")).startswith("Somebody asked me this.")
        assert done.usage is not None and done.choices[0].finish_reason == "stop"
        with pytest.raises(openai.APIStatusError) as failed:
            await client.chat.completions.create(model="demo/error", messages=[{"role": "user", "content": "x"}])
        assert failed.value.code == "llm_error"
        with pytest.raises(openai.APIError):
            stream = await client.chat.completions.create(
                model="demo/error?after=2", messages=[{"role": "user", "content": "x"}], stream=True
            )
            async for _ in stream:
                pass


CONFIG = """
[server]
cors_origins = ["https://app.example"]

[limits]
heartbeat_seconds = 1.0

[[auth.tokens]]
id = "ann"
sha256 = "0a5ba7ebf3a2ab0d5cf9b5c2a5d83b4d5b4a8a27a0d2d5c51b8cf9cfd1b4e0a1"
permissions = ["approve"]
"""


@pytest.mark.row("NET-7", "ERR-5")
@pytest.mark.parametrize("path", PATHS)
async def test_without_a_token_401_comes_with_cors_headers_and_preflight_is_answered(tmp_path: Path, path: str) -> None:
    async with serving(tmp_path, config=CONFIG) as process:
        origin = {"Origin": "https://app.example"}
        async with httpx2.AsyncClient(base_url=process.url) as client:
            refused = await client.post(path, json=body_for(path, "x"), headers=origin)
            assert refused.status_code == 401
            assert refused.headers["access-control-allow-origin"] == "https://app.example"
            asked = {**origin, "Access-Control-Request-Method": "POST"}
            assert (await client.options(path, headers=asked)).status_code == 200


@pytest.mark.row("NET-4", "NET-7", "NET-8")
async def test_a_silent_answer_has_heartbeats_and_ends_cleanly_when_the_server_goes(tmp_path: Path) -> None:
    async with serving(tmp_path, config=CONFIG.partition("[[auth")[0]) as process:
        await prepare(process, "c1", "demo/hang")
        body, origin = body_for("/chat", "x", "c1"), {"Origin": "https://app.example"}
        said = b""
        async with opened(process.url, "/chat", body, origin) as answer:
            assert answer.headers["access-control-allow-origin"] == "https://app.example"
            is_told = False
            async for chunk in answer.aiter_raw():
                said += chunk
                if b"\n: hb " in said and not is_told:
                    is_told = True
                    process.send(signal.SIGTERM)
        assert is_told and b'"code":"unavailable"' in said
        assert said.endswith(b'event: done\ndata: {"session_id":"c1"}\nid: c1\n\n')
        assert await process.ended() == 0
