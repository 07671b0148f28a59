"""The door of OpenAI's Responses, with the unmodified `openai` package from PyPI."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import httpx2
import openai
import pytest

from tests.support.reader import watching
from tests.support.server import DEADLINE_SECONDS, Process, command, serving, user_message

pytestmark = pytest.mark.anyio

FAST = "demo/echo"
TOOL: Any = {
    "type": "function",
    "name": "open_tab",
    "description": "Opens a tab.",
    "parameters": {"type": "object", "properties": {"title": {"type": "string"}}},
    "strict": False,
}


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Process]:
    async with serving(tmp_path) as process:
        yield process


def client_of(process: Process) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=f"{process.url}/v1", api_key="none", max_retries=0, timeout=DEADLINE_SECONDS)


@pytest.fixture
async def client(server: Process) -> AsyncIterator[openai.AsyncOpenAI]:
    async with client_of(server) as client:
        yield client


@pytest.mark.row("DOOR-2")
async def test_a_streamed_answer_is_retrieved_replayed_and_deleted(client: openai.AsyncOpenAI) -> None:
    async with client.responses.stream(model=FAST, input="hello", metadata={"a": "b"}) as stream:
        events = [event async for event in stream]
        final = await stream.get_final_response()
    assert final.output_text == "You said: hello"
    assert [event.sequence_number for event in events] == list(range(len(events)))
    again = await client.responses.retrieve(final.id)
    assert (again.output_text, again.status, again.metadata) == ("You said: hello", "completed", {"a": "b"})
    whole = [event async for event in await client.responses.retrieve(final.id, stream=True)]
    rest = [event async for event in await client.responses.retrieve(final.id, stream=True, starting_after=3)]
    assert [e.model_dump() for e in rest] == [e.model_dump() for e in whole][4:]
    assert whole[-1].response.model_dump() == again.model_dump()  # type: ignore[union-attr]  # the last event has it
    items = await client.responses.input_items.list(final.id)
    content = items.data[0].model_dump()["content"]
    assert [part["text"] for part in content] == ["hello"]
    await client.responses.delete(final.id)

    async def is_gone() -> bool:
        try:
            await client.responses.retrieve(final.id)
        except openai.NotFoundError:
            return True
        return False

    with anyio.fail_after(DEADLINE_SECONDS):
        while not await is_gone():
            await anyio.sleep(0.01)


@pytest.mark.row("DOOR-2")
async def test_a_previous_response_branches_there_and_not_at_the_leaf(
    server: Process, client: openai.AsyncOpenAI
) -> None:
    first = await client.responses.create(model=FAST, input="one")
    second = await client.responses.create(model=FAST, input="two", previous_response_id=first.id)
    other = await client.responses.create(model=FAST, input="three", previous_response_id=first.id)
    assert second.conversation and first.conversation and other.conversation
    assert second.conversation.id == first.conversation.id != other.conversation.id
    async with httpx2.AsyncClient(base_url=server.url, timeout=DEADLINE_SECONDS) as http:
        chat = (await http.get(f"/v1/chats/{other.conversation.id}")).json()
    assert [m["content"] for m in chat["messages"]] == ["one", "You said: one", "three", "You said: three"]


@pytest.mark.row("DOOR-2")
async def test_a_conversation_is_a_chat_and_an_unknown_one_is_404(server: Process, client: openai.AsyncOpenAI) -> None:
    made = await client.conversations.create(metadata={"k": "v"})
    answer = await client.responses.create(model=FAST, input="hi", conversation=made.id)
    assert answer.output_text == "You said: hi"
    assert (await client.conversations.retrieve(made.id)).metadata == {"k": "v"}
    async with watching(server.url, made.id) as watcher:
        await command(server.url, made.id, user_message("ours", "from ours"))
        await watcher.until(lambda w: w.runs_ended > 0)
    await client.conversations.delete(made.id)
    for call in (
        client.conversations.retrieve(made.id),
        client.responses.create(model=FAST, input="hi", conversation="conv_unknown"),
        client.responses.retrieve(answer.id),
        client.responses.retrieve("resp_x"),
    ):
        with pytest.raises(openai.NotFoundError):
            await call


async def test_a_function_call_is_answered_and_the_run_goes_on(client: openai.AsyncOpenAI) -> None:
    asked = await client.responses.create(
        model="demo/tools?rate=0", input='call open_tab {"title":"Help"}', tools=[TOOL]
    )
    call = next(item for item in asked.output if item.type == "function_call")
    assert (call.name, json.loads(call.arguments)) == ("open_tab", {"title": "Help"})
    with pytest.raises(openai.ConflictError):
        await client.responses.create(model=FAST, input="meanwhile", previous_response_id=asked.id)
    output: Any = [{"type": "function_call_output", "call_id": call.call_id, "output": "It is open."}]
    done = await client.responses.create(model=FAST, input=output, previous_response_id=asked.id)
    assert done.status == "completed" and "It is open." in done.output_text
    assert (await client.responses.retrieve(done.id)).output == done.output
    assert (await client.responses.retrieve(asked.id)).output == asked.output


@pytest.mark.row("DOOR-2")
async def test_a_cancelled_response_keeps_its_text(client: openai.AsyncOpenAI) -> None:
    begun = await client.responses.create(model="demo/hang?after=5", input="hello", background=True)
    assert begun.status == "queued"
    async for event in await client.responses.retrieve(begun.id, stream=True):
        if event.type == "response.output_text.delta":
            break
    ended = await client.responses.cancel(begun.id)
    assert ended.status == "cancelled" and ended.output_text
    assert (await client.responses.retrieve(begun.id)).output_text == ended.output_text


async def test_a_failed_run_fails_its_response_and_a_bad_request_is_openais_error(
    server: Process, client: openai.AsyncOpenAI
) -> None:
    events = [event async for event in await client.responses.create(model="demo/error", input="x", stream=True)]
    assert events[-1].type == "response.failed"
    failed = await client.responses.create(model="demo/error", input="x")
    assert failed.status == "failed" and failed.error is not None and failed.error.code == "server_error"
    with pytest.raises(openai.BadRequestError) as wrong:
        await client.responses.create(model=FAST, input="x", tools=[{"type": "web_search"}])
    assert (wrong.value.code, wrong.value.param) == ("bad_request", "tools.0")


async def test_a_response_that_is_not_stored_is_not_found_and_its_chat_is_in_no_list(
    server: Process, client: openai.AsyncOpenAI
) -> None:
    answer = await client.responses.create(model=FAST, input="x", store=False)
    assert answer.output_text == "You said: x" and answer.conversation is not None
    with pytest.raises(openai.NotFoundError):
        await client.responses.retrieve(answer.id)
    async with httpx2.AsyncClient(base_url=server.url, timeout=DEADLINE_SECONDS) as http:
        thread = (await http.get(f"/v1/chats/{answer.conversation.id}")).json()["thread"]
        listed = [chat["id"] for chat in (await http.get("/v1/chats?limit=200")).json()["items"]]
    assert thread["temporary"] is True and answer.conversation.id not in listed


@pytest.mark.row("DOOR-2")
async def test_a_cut_stream_is_resumed_with_every_event_once(client: openai.AsyncOpenAI) -> None:
    seen: list[Any] = []
    stream = await client.responses.create(model="demo/essay?words=200&rate=400", input="x", stream=True)
    async for event in stream:
        seen.append(event)
        if len(seen) == 20:
            break
    await stream.close()
    own_id = seen[0].response.id
    rest = await client.responses.retrieve(own_id, stream=True, starting_after=seen[-1].sequence_number)
    seen += [event async for event in rest]
    assert [event.sequence_number for event in seen] == list(range(len(seen)))
    text = "".join(event.delta for event in seen if event.type == "response.output_text.delta")
    assert text == seen[-1].response.output_text == (await client.responses.retrieve(own_id)).output_text
