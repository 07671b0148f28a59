"""Agents of other frameworks for `bench.frameworks`: each writes many tokens without pauses, with a model that needs no
network.

Run as a program, this module streams the answer of one agent into a list by its framework's usual function, and prints
the CPU time in seconds: `python -m bench.frameworks_app NAME [URL]`. Agents that are other programs
(`frameworks_remote.py`) are read with the types and the client of their protocol's package.
"""

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

import acp
import httpx2
from ag_ui.core import Event, RunAgentInput, UserMessage
from agents import Agent as SdkAgent
from agents import Runner, set_tracing_disabled
from langchain.agents import create_agent
from langchain_core.messages import HumanMessage
from pydantic import TypeAdapter
from pydantic_ai import Agent
from tests.agents.lg_model import LocalModel as GraphModel
from tests.agents.oai_model import LocalModel, said
from tests.agents.pyd_model import local_model

from bench.frameworks_remote import TOKENS
from bench.frameworks_remote import WORDS as TOLD
from threadcast.agents import langgraph, openai_agents, pydantic_ai

__all__ = ["NAMES", "TOKENS"]

WORDS = "".join(TOLD).strip()

of_pydantic_ai: Agent[None, str] = Agent(local_model(lambda messages, info: [WORDS]))
of_langgraph = create_agent(GraphModel(write=lambda messages: [WORDS]))
of_openai_agents: SdkAgent[Any] = SdkAgent("bench", model=LocalModel(lambda given, instructions: [said(WORDS)]))


async def stream_pydantic_ai() -> list[Any]:
    found: list[Any] = []
    async with of_pydantic_ai.iter("go") as run:
        async for node in run:
            if Agent.is_model_request_node(node):
                async with node.stream(run.ctx) as events:
                    async for event in events:
                        found.append(event)
    return found


async def stream_openai_agents() -> list[Any]:
    set_tracing_disabled(True)
    found: list[Any] = []
    async for event in Runner.run_streamed(of_openai_agents, "go").stream_events():
        found.append(event)
    return found


async def stream_langgraph() -> list[Any]:
    given: Any = {"messages": [HumanMessage("go")]}
    return [event async for event in of_langgraph.astream(given, stream_mode="messages")]


async def stream_acp() -> list[Any]:
    found: list[Any] = []

    class Reader:
        def on_connect(self, conn: Any) -> None:
            pass

        async def session_update(self, session_id: str, update: Any, **more: Any) -> None:
            found.append(update)

    reader: Any = Reader()  # Any: has only the methods of acp.Client that are called
    async with acp.spawn_agent_process(reader, sys.executable, "-m", "bench.frameworks_remote", "acp") as (agent, _):
        await agent.initialize(protocol_version=1)
        session = await agent.new_session(cwd="/", mcp_servers=[])
        await agent.prompt(prompt=[acp.text_block("go")], session_id=session.session_id)
    return found


async def stream_ag_ui() -> list[Any]:
    """Read the events of the remote agent at the URL of the command line. The package has types, but no client."""
    asked = RunAgentInput(
        thread_id="t",
        run_id="r",
        state=None,
        messages=[UserMessage(id="u", content="go")],
        tools=[],
        context=[],
        forwarded_props=None,
    )
    body = asked.model_dump(mode="json", by_alias=True)
    events: TypeAdapter[Any] = TypeAdapter(Event)
    found: list[Any] = []
    async with httpx2.AsyncClient(timeout=60) as http, http.stream("POST", sys.argv[2], json=body) as response:
        async for line in response.aiter_lines():
            if line.startswith("data: "):
                found.append(events.validate_json(line[6:]))
    return found


STREAMS: dict[str, Callable[[], Awaitable[list[Any]]]] = {
    "pydantic_ai": stream_pydantic_ai,
    "openai_agents": stream_openai_agents,
    "langgraph": stream_langgraph,
    "acp": stream_acp,
    "ag_ui": stream_ag_ui,
}
NAMES = list(STREAMS)

pydantic_ai.serve(of_pydantic_ai, name="pydantic_ai")
openai_agents.serve(of_openai_agents, name="openai_agents")
langgraph.serve(of_langgraph, name="langgraph")


async def main(name: str) -> None:
    await STREAMS[name]()  # the first time imports and builds more
    before = time.process_time()
    found = await STREAMS[name]()
    print(time.process_time() - before)
    assert len(found) >= TOKENS


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
