"""Agents that are other programs, for `bench.frameworks`: each writes many tokens at once.

`python -m bench.frameworks_remote acp` speaks ACP on its standard streams; `… ag_ui PORT` answers AG-UI over HTTP.
"""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from typing import Any

import acp
import uvicorn
from acp import schema
from ag_ui.core import (
    RunAgentInput,
    RunFinishedEvent,
    RunStartedEvent,
    TextMessageContentEvent,
    TextMessageEndEvent,
    TextMessageStartEvent,
)
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.routing import Route

__all__ = ["TOKENS", "WORDS"]

TOKENS = 20_000
WORDS = [f"w{number % 1_000} " for number in range(TOKENS)]


class Coder:
    """A coding agent that writes text and calls no tools."""

    client: Any  # Any: acp.Client, with the models' fields as keywords

    def on_connect(self, conn: Any) -> None:
        self.client = conn

    async def initialize(self, protocol_version: int, **more: Any) -> schema.InitializeResponse:
        return schema.InitializeResponse(protocol_version=1)

    async def new_session(self, cwd: str, **more: Any) -> schema.NewSessionResponse:
        return schema.NewSessionResponse(session_id=os.urandom(4).hex())

    async def prompt(self, prompt: list[Any], session_id: str, **more: Any) -> schema.PromptResponse:
        for word in WORDS:
            await self.client.session_update(session_id=session_id, update=acp.update_agent_message_text(word))
        return schema.PromptResponse(stop_reason="end_turn")


async def answer(request: Request) -> StreamingResponse:
    run = RunAgentInput.model_validate(await request.json())

    async def stream() -> AsyncIterator[str]:
        told: list[Any] = [
            RunStartedEvent(thread_id=run.thread_id, run_id=run.run_id),
            TextMessageStartEvent(message_id="m", role="assistant"),
            *(TextMessageContentEvent(message_id="m", delta=word) for word in WORDS),
            TextMessageEndEvent(message_id="m"),
            RunFinishedEvent(thread_id=run.thread_id, run_id=run.run_id),
        ]
        for event in told:
            yield f"data: {event.model_dump_json(by_alias=True, exclude_none=True)}\n\n"

    return StreamingResponse(stream(), media_type="text/event-stream")


if __name__ == "__main__":
    if sys.argv[1] == "acp":
        agent: Any = Coder()  # Any: it has those methods of acp.Agent that are needed
        asyncio.run(acp.run_agent(agent))
    else:
        app = Starlette(routes=[Route("/", answer, methods=["POST"])])
        uvicorn.run(app, port=int(sys.argv[2]), log_level="error")
