"""A remote agent that speaks AG-UI, made with the protocol's own package: `python -m tests.agents.ag_ui_server PORT`.

The last words of the user choose what the agent does. It appends each request to the file `asked` and each effect of
its own tools to the file `effects`, both in DIRECTORY.
"""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import uvicorn
from ag_ui.core import (
    ActivitySnapshotEvent,
    AssistantMessage,
    BaseEvent,
    CustomEvent,
    Interrupt,
    MessagesSnapshotEvent,
    ReasoningMessageContentEvent,
    RunAgentInput,
    RunErrorEvent,
    RunFinishedEvent,
    RunFinishedInterruptOutcome,
    RunStartedEvent,
    StateDeltaEvent,
    StateSnapshotEvent,
    StepStartedEvent,
    TextMessageChunkEvent,
    TextMessageContentEvent,
    TextMessageEndEvent,
    TextMessageStartEvent,
    TokenUsage,
    ToolCallArgsEvent,
    ToolCallEndEvent,
    ToolCallResultEvent,
    ToolCallStartEvent,
)
from ag_ui.encoder import EventEncoder
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

DIRECTORY = Path(os.environ.get("DIRECTORY", "."))
WORDS = [f"word{number} " for number in range(25)]
SLOW_SECONDS = 0.03

APPROVAL = {
    "type": "object",
    "properties": {
        "approved": {"type": "boolean"},
        "editedArgs": {"type": "object"},
        "reason": {"type": "string"},
    },
    "required": ["approved"],
}


def note(file: str, line: str) -> None:
    with (DIRECTORY / file).open("a") as opened:
        opened.write(f"{line}\n")


async def text(message_id: str, *pieces: str, seconds: float = 0.0) -> AsyncIterator[BaseEvent]:
    yield TextMessageStartEvent(message_id=message_id, role="assistant")
    for piece in pieces:
        await asyncio.sleep(seconds)
        yield TextMessageContentEvent(message_id=message_id, delta=piece)
    yield TextMessageEndEvent(message_id=message_id)


async def call(call_id: str, name: str, parent: str, **arguments: object) -> AsyncIterator[BaseEvent]:
    yield ToolCallStartEvent(tool_call_id=call_id, tool_call_name=name, parent_message_id=parent)
    written = json.dumps(arguments)
    for piece in (written[:5], written[5:]):
        yield ToolCallArgsEvent(tool_call_id=call_id, delta=piece)
    yield ToolCallEndEvent(tool_call_id=call_id)


def asks(run: RunAgentInput, *interrupts: Interrupt) -> RunFinishedEvent:
    outcome = RunFinishedInterruptOutcome(type="interrupt", interrupts=list(interrupts))
    return RunFinishedEvent(thread_id=run.thread_id, run_id=run.run_id, outcome=outcome)


def answers(run: RunAgentInput) -> dict[str, object]:
    return {entry.interrupt_id: entry.payload if entry.status == "resolved" else None for entry in run.resume or ()}


def words_of(run: RunAgentInput) -> str:
    said = [message for message in run.messages if message.role == "user"][-1].content
    return said if isinstance(said, str) else " ".join(part.text for part in said if part.type == "text")


async def hello(run: RunAgentInput) -> AsyncIterator[BaseEvent]:
    yield StepStartedEvent(step_name="greeting")
    yield ReasoningMessageContentEvent(message_id="thought", delta="A greeting. ")
    async for event in text("m1", "Hello", " there"):
        yield event
    yield StateSnapshotEvent(snapshot={"greeted": 1})
    yield StateDeltaEvent.model_validate({"delta": [{"op": "add", "path": "/names", "value": ["Ada"]}]})
    yield CustomEvent(name="mood", value="good")
    yield ActivitySnapshotEvent(message_id="a1", activity_type="search", content={"found": 3})
    usage = [TokenUsage(input_tokens=7, output_tokens=3)]
    yield RunFinishedEvent(thread_id=run.thread_id, run_id=run.run_id, usage=usage)


async def again(run: RunAgentInput) -> AsyncIterator[BaseEvent]:
    roles = " ".join(f"{message.role}:{message.id}" for message in run.messages)
    yield TextMessageChunkEvent(message_id="m2", role="assistant", delta=f"{run.state} {roles}")


async def short(run: RunAgentInput) -> AsyncIterator[BaseEvent]:
    async for event in text("m1", "Hello there"):
        yield event


async def own_tool(run: RunAgentInput) -> AsyncIterator[BaseEvent]:
    async for event in text("m1", "I look. "):
        yield event
    async for event in call("own-1", "look_up", "m1", city="Graz"):
        yield event
    note("effects", "look_up")
    yield ToolCallResultEvent(message_id="t1", tool_call_id="own-1", content="rain")
    async for event in text("m2", "It rains."):
        yield event


async def approval(run: RunAgentInput) -> AsyncIterator[BaseEvent]:
    said = answers(run)
    if not said:
        async for event in text("m1", *WORDS, seconds=SLOW_SECONDS):
            yield event
        async for event in call("pay-1", "pay", "m1", dollars=7):
            yield event
        yield asks(run, Interrupt(id="i1", reason="tool_call", tool_call_id="pay-1", response_schema=APPROVAL))
        return
    payload = said["i1"]
    assert isinstance(payload, dict)
    if payload["approved"]:
        note("effects", f"pay {json.dumps(payload.get('editedArgs') or {'dollars': 7})}")
        yield ToolCallResultEvent(message_id="t1", tool_call_id="pay-1", content="paid")
    async for event in text("m2", *WORDS, f"{payload['approved']} {payload.get('reason', '')}", seconds=SLOW_SECONDS):
        yield event


async def two_questions(run: RunAgentInput) -> AsyncIterator[BaseEvent]:
    said = answers(run)
    if not said:
        schema = {"type": "object", "properties": {"size": {"type": "integer"}}, "required": ["size"]}
        yield asks(
            run,
            Interrupt(id="i1", reason="input", message="How large?", response_schema=schema),
            Interrupt(id="i2", reason="deploy now", message="Deploy?", response_schema=APPROVAL),
        )
        return
    async for event in text("m1", json.dumps(said, sort_keys=True)):
        yield event


async def client_tool(run: RunAgentInput) -> AsyncIterator[BaseEvent]:
    result = [message for message in run.messages if message.role == "tool"]
    if not result:
        assert [tool.name for tool in run.tools or ()] == ["pick_colour"]
        async for event in call("pick-1", "pick_colour", "m1", of="sky"):
            yield event
        return
    async for event in text("m2", f"The sky is {result[-1].content}."):
        yield event


async def snapshot(run: RunAgentInput) -> AsyncIterator[BaseEvent]:
    async for event in text("m1", "Streamed. "):
        yield event
    more = [AssistantMessage(id="m1", content="Streamed. "), AssistantMessage(id="m2", content="Not streamed.")]
    yield MessagesSnapshotEvent(messages=[*run.messages, *more])


async def fails(run: RunAgentInput) -> AsyncIterator[BaseEvent]:
    async for event in text("m1", "I try. "):
        yield event
    yield RunErrorEvent(message="No more money.", code="budget")


async def hangs(run: RunAgentInput) -> AsyncIterator[BaseEvent]:
    async for event in text("m1", "I wait. "):
        yield event
    try:
        await asyncio.sleep(60)
    finally:
        note("effects", "closed")


async def journey(run: RunAgentInput) -> AsyncIterator[BaseEvent]:
    """Write text, run the agent's own tool, ask for an approval, and write text again. Tests interrupt this run with
    kill -9."""
    if not answers(run):
        async for event in text("m0", *WORDS, seconds=SLOW_SECONDS):
            yield event
        async for event in call("own-1", "look_up", "m0", run=run.thread_id):
            yield event
        note("effects", json.dumps({"chat": run.thread_id, "name": "look_up", "what": "end"}))
        await asyncio.sleep(0.2)
        yield ToolCallResultEvent(message_id="t0", tool_call_id="own-1", content="rain")
    async for event in approval(run):
        yield event


BEHAVIOURS: dict[str, Callable[[RunAgentInput], AsyncIterator[BaseEvent]]] = {
    "hello": hello,
    "again": again,
    "short": short,
    "own tool": own_tool,
    "approval": approval,
    "two questions": two_questions,
    "client tool": client_tool,
    "snapshot": snapshot,
    "fails": fails,
    "hangs": hangs,
    "go": journey,
}

_refused: list[str] = []


async def answer(request: Request) -> Response:
    run = RunAgentInput.model_validate_json(await request.body())
    note("asked", json.dumps({"run": run.run_id, "authorization": request.headers.get("authorization")}))
    words = words_of(run)
    if words == "busy" and len(_refused) < 2:
        _refused.append(words)
        return Response("busy", status_code=503)
    if words == "moved":
        return Response(status_code=307, headers={"location": "/elsewhere"})
    if words == "nonsense":
        return Response("data: [1]\n\n", media_type="text/event-stream")
    encoder = EventEncoder()

    async def stream() -> AsyncIterator[str]:
        yield encoder.encode(RunStartedEvent(thread_id=run.thread_id, run_id=run.run_id))
        last: BaseEvent | None = None
        async for last in BEHAVIOURS.get(words, hello)(run):
            yield encoder.encode(last)
        if not isinstance(last, RunFinishedEvent | RunErrorEvent) and words != "short":
            yield encoder.encode(RunFinishedEvent(thread_id=run.thread_id, run_id=run.run_id))

    return StreamingResponse(stream(), media_type="text/event-stream")


app = Starlette(routes=[Route("/", answer, methods=["POST"])])


if __name__ == "__main__":
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")
