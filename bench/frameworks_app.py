"""Agents of other frameworks for `bench.frameworks`: each writes many tokens at once, by a model without a network.

As a program it streams one of them into a list, as its framework offers it, and prints the CPU time of that in seconds:
`python -m bench.frameworks_app NAME`."""

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

from agents import Agent as SdkAgent
from agents import Runner, set_tracing_disabled
from pydantic_ai import Agent
from tests.agents.oai_model import LocalModel, said
from tests.agents.pyd_model import local_model

from threadcast.agents import openai_agents, pydantic_ai

__all__ = ["NAMES", "TOKENS"]

TOKENS = 20_000
WORDS = " ".join(f"w{number % 1_000}" for number in range(TOKENS))

of_pydantic_ai: Agent[None, str] = Agent(local_model(lambda messages, info: [WORDS]))
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


STREAMS: dict[str, Callable[[], Awaitable[list[Any]]]] = {
    "pydantic_ai": stream_pydantic_ai,
    "openai_agents": stream_openai_agents,
}
NAMES = list(STREAMS)

pydantic_ai.serve(of_pydantic_ai, name="pydantic_ai")
openai_agents.serve(of_openai_agents, name="openai_agents")


async def main(name: str) -> None:
    await STREAMS[name]()  # the first time imports and builds more
    before = time.process_time()
    found = await STREAMS[name]()
    print(time.process_time() - before)
    assert len(found) >= TOKENS


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
