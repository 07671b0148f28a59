"""The unpatched `openai` package against the door of Chat Completions."""

import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx2
import openai
import pytest
from openai.types.chat import ChatCompletionMessageParam, ChatCompletionToolUnionParam

from tests.support.reader import watching
from tests.support.server import DEADLINE_SECONDS, Process, command, serving, started_server, user_message

pytestmark = pytest.mark.anyio

HEADER = "X-Threadcast-Chat-Id"
CONFIG = """
[doors.openai]
chat_id_header = "X-OpenWebUI-Chat-Id"
match_history = true
user_header = "X-OpenWebUI-User-Id"
"""
FAST = "demo/tools?rate=0"
TOOL: ChatCompletionToolUnionParam = {
    "type": "function",
    "function": {"name": "weather", "parameters": {"type": "object", "properties": {"town": {"type": "string"}}}},
}
SYSTEM: ChatCompletionMessageParam = {"role": "system", "content": "Be kind."}


def user(text: str) -> ChatCompletionMessageParam:
    return {"role": "user", "content": text}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    with started_server(tmp_path_factory.mktemp("door"), config=CONFIG) as process:
        yield process.wait_ready()


@pytest.fixture
async def client(server: Process) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as made:
        yield made


async def listed(server: Process) -> list[str]:
    async with httpx2.AsyncClient(timeout=DEADLINE_SECONDS) as http:
        return [item["id"] for item in (await http.get(f"{server.url}/v1/chats?limit=100")).json()["items"]]


async def messages_of(server: Process, chat_id: str) -> list[tuple[str, str]]:
    async with watching(server.url, chat_id) as tab:
        return tab.messages


@pytest.mark.row("DOOR-1")
async def test_models_profiles_and_one_model_are_listed(client: openai.AsyncOpenAI) -> None:
    names = [model.id async for model in await client.models.list()]
    assert "agent" in names and any(name.startswith("demo/") for name in names)
    assert (await client.models.retrieve(names[-1])).id == names[-1]
    with pytest.raises(openai.NotFoundError) as missing:
        await client.models.retrieve("demo/none/at/all")
    assert missing.value.code == "model_not_found"


async def test_a_new_named_chat_streams_and_goes_on(server: Process, client: openai.AsyncOpenAI) -> None:
    stream = await client.chat.completions.with_raw_response.create(
        model="demo/echo", messages=[SYSTEM, user("one")], metadata={"chat_id": "named-1"}, stream=True
    )
    assert stream.headers[HEADER] == "named-1"
    chunks = [chunk async for chunk in stream.parse()]
    assert "".join(c.choices[0].delta.content or "" for c in chunks) == "You said: one"
    assert {json.dumps(getattr(c, "metadata", None)) for c in chunks} == {'{"chat_id": "named-1"}'}
    done = await client.chat.completions.create(
        model="demo/echo", messages=[user("two")], metadata={"chat_id": "named-1"}
    )
    assert done.choices[0].message.content == "You said: two"
    texts = [text for role, text in await messages_of(server, "named-1") if role == "user"]
    assert texts == ["one", "two"]


@pytest.mark.row("DOOR-1")
async def test_history_is_restored_matched_and_branched(server: Process, client: openai.AsyncOpenAI) -> None:
    history: list[ChatCompletionMessageParam] = [user("first q"), {"role": "assistant", "content": "first a"}]
    begun = await client.chat.completions.with_raw_response.create(
        model="demo/echo", messages=[*history, user("second q")]
    )
    chat_id = begun.headers[HEADER]
    wanted = [("user", "first q"), ("assistant", "first a"), ("user", "second q"), ("assistant", "You said: second q")]
    assert await messages_of(server, chat_id) == wanted
    history += [user("second q"), {"role": "assistant", "content": "You said: second q"}]
    again = await client.chat.completions.with_raw_response.create(
        model="demo/echo", messages=[*history, user("third q")]
    )
    assert again.headers[HEADER] == chat_id
    edited = await client.chat.completions.with_raw_response.create(
        model="demo/echo", messages=[*history[:2], user("another q")]
    )
    assert edited.headers[HEADER] == chat_id
    path = await messages_of(server, chat_id)
    assert path == [*wanted[:2], ("user", "another q"), ("assistant", "You said: another q")]
    async with httpx2.AsyncClient(timeout=DEADLINE_SECONDS) as http:  # the replaced turns are still in the tree
        tree = await http.get(f"{server.url}/v1/chats/{chat_id}?view=tree")
    assert "You said: third q" in tree.text and "You said: another q" in tree.text


async def test_a_task_beside_a_conversation_and_a_request_that_stores_nothing_are_in_no_list(
    server: Process, client: openai.AsyncOpenAI
) -> None:
    headers = {"X-OpenWebUI-Chat-Id": "webui-1"}
    await client.chat.completions.create(model="demo/echo", messages=[user("hi there")], extra_headers=headers)
    task = await client.chat.completions.with_raw_response.create(
        model="demo/echo", messages=[user("### Task: a title for <hi there>")], extra_headers=headers
    )
    assert task.headers[HEADER] != "webui-1"
    assert await messages_of(server, "webui-1") == [("user", "hi there"), ("assistant", "You said: hi there")]
    brief = await client.chat.completions.with_raw_response.create(
        model="demo/echo", messages=[user("forget me")], store=False
    )
    for _ in range(2):  # a chat that existed before remains in the lists
        await client.chat.completions.create(
            model="demo/echo", messages=[user("stay")], store=False, metadata={"chat_id": "webui-1"}
        )
    assert "webui-1" in await listed(server)
    temporary = [task.headers[HEADER], brief.headers[HEADER]]
    assert not set(temporary) & set(await listed(server))
    async with httpx2.AsyncClient(base_url=server.url, timeout=DEADLINE_SECONDS) as http:
        threads = [(await http.get(f"/v1/chats/{chat_id}")).json()["thread"] for chat_id in (*temporary, "webui-1")]
    assert [thread.get("temporary") for thread in threads] == [True, True, None]
    await client.chat.completions.create(
        model="demo/echo", messages=[user("keep it")], store=True, metadata={"chat_id": temporary[1]}
    )
    assert temporary[1] in await listed(server)


async def test_a_history_continues_only_chats_of_the_same_user_of_the_front_end(
    server: Process, client: openai.AsyncOpenAI
) -> None:
    history = [user("our secret"), {"role": "assistant", "content": "You said: our secret"}, user("go on")]

    async def asks(messages: list[Any], header: str = "", **more: Any) -> str:
        headers = {"X-OpenWebUI-User-Id": header} if header else {}
        answer = await client.chat.completions.with_raw_response.create(
            model="demo/echo", messages=messages, extra_headers=headers, **more
        )
        return str(answer.headers[HEADER])

    begun = {who: await asks(history[:1], who) for who in ("", "ann", "ben")}
    assert len(set(begun.values())) == 3
    for who, chat_id in begun.items():
        assert await asks(history, who) == chat_id
    longer = [*history, {"role": "assistant", "content": "You said: go on"}, user("and on")]
    assert await asks(longer, user="ann") == begun["ann"]  # the body reports the error, as OpenAI's does
    assert await asks(longer, safety_identifier="eve") not in begun.values()
    with pytest.raises(openai.BadRequestError):
        await asks(history, "x" * 513)


@pytest.mark.row("DOOR-1")
async def test_a_tool_of_the_caller_is_called_and_its_result_goes_on(
    server: Process, client: openai.AsyncOpenAI
) -> None:
    messages: list[Any] = [user('call weather {"town":"Ulm"}')]
    asked = await client.chat.completions.with_raw_response.create(model=FAST, messages=messages, tools=[TOOL])
    chat_id, choice = asked.headers[HEADER], asked.parse().choices[0]
    assert choice.finish_reason == "tool_calls" and choice.message.tool_calls is not None
    (call,) = choice.message.tool_calls
    assert call.type == "function" and json.loads(call.function.arguments) == {"town": "Ulm"}
    messages += [choice.message.model_dump(exclude_none=True)]
    with pytest.raises(openai.BadRequestError):
        await client.chat.completions.create(
            model=FAST, messages=[*messages, {"role": "tool", "tool_call_id": f"x@{chat_id}", "content": "?"}]
        )
    messages += [{"role": "tool", "tool_call_id": call.id, "content": "rain"}]
    done = await client.chat.completions.with_raw_response.create(model=FAST, messages=messages, tools=[TOOL])
    assert done.headers[HEADER] == chat_id and done.parse().choices[0].finish_reason == "stop"
    assert "rain" in (done.parse().choices[0].message.content or "")
    path = await messages_of(server, chat_id)
    assert [role for role, _ in path] == ["user", "assistant", "tool", "assistant"] and path[2][1] == "rain"
    with pytest.raises(openai.ConflictError):
        await client.chat.completions.create(model=FAST, messages=messages, tools=[TOOL])


async def test_tools_of_the_server_are_not_shown_and_rounds_are_separated(client: openai.AsyncOpenAI) -> None:
    stream = await client.chat.completions.create(
        model=FAST, messages=[user('call calculator {"expression":"6*7"}')], stream=True
    )
    deltas = [chunk.choices[0].delta async for chunk in stream]
    assert not any(delta.tool_calls for delta in deltas)
    text = "".join(delta.content or "" for delta in deltas)
    assert "\n\n" in text and text.endswith("42")


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"n": 2}, "n"),
    ({"logprobs": True}, "logprobs"),
    ({"response_format": {"type": "json_object"}}, "response_format"),
    ({"tool_choice": "required"}, "tool_choice"),
    ({"temperature": 9}, "temperature"),
    ({"metadata": {"chat_id": "x" * 600}}, "metadata.chat_id"),
    ({"messages": [{"role": "robot", "content": "x"}]}, "messages.0.role"),
]


@pytest.mark.row("DOOR-1")
@pytest.mark.parametrize(("more", "param"), REFUSED, ids=[param for _, param in REFUSED])
async def test_a_wish_that_cannot_be_met_is_openais_error(
    client: openai.AsyncOpenAI, more: dict[str, Any], param: str
) -> None:
    wish: dict[str, Any] = {"model": "demo/echo", "messages": [user("x")], **more}
    with pytest.raises(openai.BadRequestError) as refused:
        await client.chat.completions.create(**wish)
    assert (refused.value.param, refused.value.type) == (param, "invalid_request_error")


async def test_an_unknown_model_is_404_and_a_failed_run_is_an_error(client: openai.AsyncOpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as missing:
        await client.chat.completions.create(model="gpt-none", messages=[user("x")])
    assert missing.value.code == "model_not_found"
    with pytest.raises(openai.APIStatusError) as failed:
        await client.chat.completions.create(model="demo/error", messages=[user("x")])
    assert (failed.value.status_code, failed.value.code) == (502, "llm_error")


async def test_closing_the_stream_stops_the_run(server: Process, client: openai.AsyncOpenAI) -> None:
    async with watching(server.url, "closed-1") as tab:
        stream = await client.chat.completions.create(
            model="demo/hang?after=2&rate=0",
            messages=[user("x")],
            metadata={"chat_id": "closed-1"},
            stream=True,
        )
        await anext(stream)
        await stream.close()
        await tab.at_rest()
        assert [frame["outcome"] for frame in tab.frames if frame.get("outcome")] == ["aborted"]


async def test_a_chat_of_another_client_goes_on_here(server: Process, client: openai.AsyncOpenAI) -> None:
    await command(server.url, "shared-1", user_message("a", "from the page"))
    async with watching(server.url, "shared-1") as tab:
        await tab.at_rest()
        done = await client.chat.completions.create(
            model="demo/echo", messages=[user("from the door")], metadata={"chat_id": "shared-1"}
        )
        await tab.at_rest(2)
        assert tab.messages[-2:] == [("user", "from the door"), ("assistant", done.choices[0].message.content or "")]


async def test_a_pause_says_where_to_decide(tmp_path: Path) -> None:
    config = '[server]\npublic_url = "http://127.0.0.1"\n[tools.calculator]\npolicy = "ask"\n'
    async with (
        serving(tmp_path, config=config) as process,
        openai.AsyncOpenAI(base_url=f"{process.url}/v1", api_key="none", max_retries=0) as client,
    ):
        done = await client.chat.completions.create(
            model=FAST,
            messages=[user('call calculator {"expression":"6*7"}')],
            metadata={"chat_id": "paused-1"},
        )
        assert done.choices[0].finish_reason == "stop"
        assert (done.choices[0].message.content or "").endswith("[Waiting for approval: http://127.0.0.1/c/paused-1]")
        with pytest.raises(openai.ConflictError):
            await client.chat.completions.create(model=FAST, messages=[user("and?")], metadata={"chat_id": "paused-1"})
