"""Tests clients of Responses that keep the conversation themselves, as the OpenAI Agents SDK does. Other tests check
what the server keeps of requests with `store: false` and of trimmed logs, and check reasoning, images, and the
operator's `on_disconnect`."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import httpx2
import openai
import pytest
from agents import Agent, OpenAIResponsesModel, Runner, function_tool, set_tracing_disabled

from tests.doors.dresponses.test_responses import TOOL, client_of
from tests.support.reader import watching
from tests.support.server import DEADLINE_SECONDS, Process, serving
from tests.support.tokens import token_of, tokens
from tests.unit.pure_chat import PureChat, say
from threadcast.compat.responses.replay import messages_as_events
from threadcast.compat.responses.response_ids import ResponseId
from threadcast_protocol.wire.deltas import AppendContent, AppendReasoning
from threadcast_protocol.wire.events import StreamDelta, StreamStarted

pytestmark = pytest.mark.anyio

TOOLS_MODEL = "demo/tools?rate=0"
PIXEL = "data:image/gif;base64,R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7"


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Process]:
    async with serving(tmp_path) as process:
        yield process


@pytest.fixture
async def client(server: Process) -> AsyncIterator[openai.AsyncOpenAI]:
    async with client_of(server) as client:
        yield client


async def listed(server: Process) -> list[str]:
    async with httpx2.AsyncClient(base_url=server.url, timeout=DEADLINE_SECONDS) as http:
        return [chat["id"] for chat in (await http.get("/v1/chats?limit=100")).json()["items"]]


@pytest.mark.parametrize("streams", [False, True])
async def test_the_agents_sdk_runs_its_tool_in_one_run_of_ours(
    server: Process, client: openai.AsyncOpenAI, streams: bool
) -> None:
    set_tracing_disabled(True)
    called: list[str] = []

    @function_tool
    def weather(town: str) -> str:
        """Tell the weather of a town."""
        called.append(town)
        return f"rain in {town}"

    agent = Agent(
        name="helper", instructions="Be kind.", tools=[weather], model=OpenAIResponsesModel(TOOLS_MODEL, client)
    )
    question = 'call weather {"town":"Ulm"}'
    if streams:
        result: Any = Runner.run_streamed(agent, question)
        deltas = [
            event.data.delta
            async for event in result.stream_events()
            if event.type == "raw_response_event" and event.data.type == "response.output_text.delta"
        ]
        assert str(result.final_output) in "".join(deltas)
    else:
        result = await Runner.run(agent, question)
    assert called == ["Ulm"] and "rain in Ulm" in str(result.final_output)
    (chat_id,) = await listed(server)
    async with watching(server.url, chat_id) as tab:
        assert [role for role, _ in tab.messages] == ["user", "assistant", "tool", "assistant"]
        assert tab.runs_ended == 1 and tab.messages[2][1] == "rain in Ulm"
    more = await Runner.run(agent, [*result.to_input_list(), {"role": "user", "content": "and now?"}])
    assert called == ["Ulm"] and more.final_output
    (newer,) = set(await listed(server)) - {chat_id}
    # the request's history begins a new chat, with the call and its result
    async with watching(server.url, newer) as tab:
        assert [role for role, _ in tab.messages][:5] == ["user", "assistant", "tool", "assistant", "user"]
        assert tab.messages[4][1] == "and now?"


async def test_a_stateless_loop_leaves_nothing(server: Process, client: openai.AsyncOpenAI) -> None:
    history: list[Any] = [{"role": "user", "content": 'call open_tab {"title":"Help"}'}]
    asked = await client.responses.create(model=TOOLS_MODEL, input=history, tools=[TOOL], store=False)
    (call,) = [item for item in asked.output if item.type == "function_call"]
    history += [item.model_dump(exclude_none=True) for item in asked.output]
    history += [{"type": "function_call_output", "call_id": call.call_id, "output": "It is open."}]
    done = await client.responses.create(model=TOOLS_MODEL, input=history, tools=[TOOL], store=False)
    assert "It is open." in done.output_text
    for own_id in (asked.id, done.id):
        with pytest.raises(openai.NotFoundError):
            await client.responses.retrieve(own_id)
    history += [item.model_dump(exclude_none=True) for item in done.output]
    history += [{"role": "user", "content": "thanks"}]
    last = await client.responses.create(model="demo/echo?rate=0", input=history, store=False)
    assert last.output_text == "You said: thanks"
    with anyio.fail_after(DEADLINE_SECONDS):
        while await listed(server):
            await anyio.sleep(0.01)


async def test_a_result_names_its_own_chat_and_no_other(tmp_path: Path) -> None:
    async with serving(tmp_path, config=tokens(ann="", bob="")) as server, client_of(server) as client:
        ann, bob = (client.with_options(api_key=token_of(name)) for name in ("ann", "bob"))
        question = 'call open_tab {"title":"Help"}'
        asked, other = [await ann.responses.create(model=TOOLS_MODEL, input=question, tools=[TOOL]) for _ in range(2)]
        call, of_other = (next(i for i in each.output if i.type == "function_call") for each in (asked, other))

        def output(call_id: str) -> Any:
            return {"type": "function_call_output", "call_id": call_id, "output": "x"}

        unknown = call.call_id.rpartition("@")[0] + "@conv_" + "0" * 32
        bodies = []
        for call_id in (call.call_id, unknown):
            with pytest.raises(openai.NotFoundError) as missing:
                await bob.responses.create(input=[output(call_id)])
            bodies.append(missing.value.body)
        assert bodies[0] == bodies[1]
        for wrong in ([output(call.call_id), output(of_other.call_id)], [output("call_x")]):
            with pytest.raises(openai.BadRequestError):
                await ann.responses.create(input=wrong)
        with pytest.raises(openai.BadRequestError):
            await ann.responses.create(input=[output(of_other.call_id)], previous_response_id=asked.id)
        done = await ann.responses.create(input=[output(call.call_id)])
        assert done.status == "completed" and done.conversation == asked.conversation


@pytest.mark.parametrize(
    ("setting", "model", "status"),
    [("abort", "hang?after=30", "cancelled"), ("continue", "essay?words=60&rate=60", "completed")],
)
async def test_after_a_cut_the_run_ends_as_the_operator_wants(
    tmp_path: Path, setting: str, model: str, status: str
) -> None:
    config = f'[doors.responses]\non_disconnect = "{setting}"\n'
    async with serving(tmp_path, config=config) as server, client_of(server) as client:
        stream = await client.responses.create(model=f"demo/{model}", input="x", stream=True)
        seen: list[Any] = []
        async for event in stream:
            seen.append(event)
            if event.type == "response.output_text.delta":
                break
        await stream.close()
        own = seen[0].response
        async with watching(server.url, own.conversation.id) as tab:
            await tab.at_rest()
        kept = await client.responses.retrieve(own.id)
        assert kept.status == status and kept.output_text.startswith(seen[-1].delta)


async def test_reasoning_is_an_item_and_an_image_is_kept(server: Process, client: openai.AsyncOpenAI) -> None:
    parts: Any = [{"type": "input_text", "text": "what is it?"}, {"type": "input_image", "image_url": PIXEL}]
    async with client.responses.stream(
        model="demo/reasoning?words=5&rate=0", input=[{"role": "user", "content": parts}]
    ) as stream:
        events: list[Any] = [event async for event in stream]
        final = await stream.get_final_response()
    reasoning, message = final.output
    assert reasoning.type == "reasoning" and message.type == "message" and final.output_text
    thought = "".join(event.delta for event in events if event.type == "response.reasoning_summary_text.delta")
    assert thought == "".join(part.text for part in reasoning.summary) != ""
    kept = await client.responses.retrieve(final.id)
    assert [item.id for item in kept.output] == [reasoning.id, message.id] and kept.output_text == final.output_text
    (item,) = (await client.responses.input_items.list(final.id)).data
    content = item.model_dump()["content"]
    assert [part["type"] for part in content] == ["input_text", "input_image"]
    again: Any = [*(each.model_dump(exclude_none=True) for each in final.output), {"role": "user", "content": "more"}]
    more = await client.responses.create(model="demo/echo?rate=0", input=[{"role": "user", "content": "x"}, *again])
    assert more.output_text == "You said: more"  # returned reasoning is not refused


async def test_a_response_is_read_after_its_events_were_trimmed(client: openai.AsyncOpenAI) -> None:
    model, filler = "demo/echo?rate=0", "x" * 50_000  # a log keeps 1 MB of events, which is about 6 such runs
    first = await client.responses.create(model="demo/essay?words=40&rate=100", input="the first")
    before = [event async for event in await client.responses.retrieve(first.id, stream=True)]
    assert first.conversation is not None
    for _ in range(40):
        await client.responses.create(model=model, input=filler, conversation=first.conversation.id)
        events: list[Any] = [event async for event in await client.responses.retrieve(first.id, stream=True)]
        if len(events) != len(before):
            break
    else:
        pytest.fail("the log was never trimmed")
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert events[-1].type == "response.completed" and events[-1].response.output_text == first.output_text
    (last,) = [e async for e in await client.responses.retrieve(first.id, stream=True, starting_after=len(before))]
    assert last.type == "response.completed", "a client that was cut before the trim gets the whole response"
    again = await client.responses.retrieve(first.id)
    assert (again.output_text, again.status) == (first.output_text, "completed")


async def test_a_response_whose_log_is_trimmed_while_its_stream_opens_is_streamed_to_its_end(tmp_path: Path) -> None:
    app = Path(__file__).with_name("trimming_app.py")
    at_once = {"THREADCAST_LIMITS__COMPACT_AFTER_SECONDS": "0"}
    async with serving(tmp_path, app=app, environment=at_once) as process, client_of(process) as client:
        made = await client.responses.create(model="demo/echo?rate=0", input="hi")
        with anyio.fail_after(DEADLINE_SECONDS):
            events = [event async for event in await client.responses.retrieve(made.id, stream=True)]
    assert events[-1].type == "response.completed" and events[-1].response.output_text == made.output_text


def test_an_answer_that_is_being_written_has_its_text_so_far_when_its_log_was_trimmed() -> None:
    chat = PureChat(None, say("resp-s0"))
    chat.stream(AppendReasoning("hm"), AppendContent("so far"))
    (question,) = [message for message in chat.state.nodes.values() if message.role == "user"]
    run, events = messages_as_events(chat.state, ResponseId("s", 0, "0", "c1"), question)
    assert [type(event) for event in events] == [StreamStarted, StreamDelta, StreamDelta]
    texts = [op.text for event in events if isinstance(event, StreamDelta) for op in event.ops if hasattr(op, "text")]
    assert texts == ["hm", "so far"] and not run.has_ended
    (run_id,) = {event.run_id for event in chat.events if isinstance(event, StreamStarted)}
    assert run.run_id == run_id
