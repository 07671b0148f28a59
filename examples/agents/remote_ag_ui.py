"""A remote agent that speaks AG-UI, as a program of its own: `python examples/agents/remote_ag_ui.py`.

It takes the place of an agent in any language and framework. A local rule stands in for its model.
"""

from collections.abc import AsyncIterator

import uvicorn
from ag_ui.core import (
    BaseEvent,
    Interrupt,
    RunAgentInput,
    RunFinishedEvent,
    RunFinishedInterruptOutcome,
    RunStartedEvent,
    TextMessageChunkEvent,
    ToolCallArgsEvent,
    ToolCallEndEvent,
    ToolCallResultEvent,
    ToolCallStartEvent,
)
from ag_ui.encoder import EventEncoder
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.routing import Route

APPROVAL = {"type": "object", "properties": {"approved": {"type": "boolean"}}, "required": ["approved"]}


async def events(run: RunAgentInput) -> AsyncIterator[BaseEvent]:
    """One run of the agent, which waters the garden if a person agrees."""
    ids = {"thread_id": run.thread_id, "run_id": run.run_id}
    yield RunStartedEvent(**ids)
    if not run.resume:
        yield TextMessageChunkEvent(message_id="plan", role="assistant", delta="It is dry. ")
        yield ToolCallStartEvent(tool_call_id="w1", tool_call_name="water", parent_message_id="plan")
        yield ToolCallArgsEvent(tool_call_id="w1", delta='{"minutes": 10}')
        yield ToolCallEndEvent(tool_call_id="w1")
        asked = Interrupt(id="i1", reason="tool_call", tool_call_id="w1", response_schema=APPROVAL)
        yield RunFinishedEvent(**ids, outcome=RunFinishedInterruptOutcome(type="interrupt", interrupts=[asked]))
        return
    payload = run.resume[0].payload
    if isinstance(payload, dict) and payload.get("approved"):
        yield ToolCallResultEvent(message_id="done", tool_call_id="w1", content="watered for 10 minutes")
        yield TextMessageChunkEvent(message_id="end", role="assistant", delta="The garden is green again.")
    else:
        yield TextMessageChunkEvent(message_id="end", role="assistant", delta="The garden stays dry.")
    yield RunFinishedEvent(**ids)


async def answer(request: Request) -> StreamingResponse:
    """Answer a run as AG-UI asks: by a stream of its events."""
    run = RunAgentInput.model_validate_json(await request.body())
    encoder = EventEncoder()
    stream = (encoder.encode(event) async for event in events(run))
    return StreamingResponse(stream, media_type="text/event-stream")


if __name__ == "__main__":
    uvicorn.run(Starlette(routes=[Route("/", answer, methods=["POST"])]), port=8137, log_level="warning")
