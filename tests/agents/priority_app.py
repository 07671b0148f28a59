"""Three agents of different frameworks that write for a while and repeat the message that they received."""

from typing import Any

from agents import Agent as SdkAgent
from langchain.agents import create_agent
from pydantic_ai import Agent

from tests.agents import lg_model, oai_app, oai_model, pyd_model
from threadcast.agents import langgraph, openai_agents, pydantic_ai

WORDS = " ".join(f"word{number}" for number in range(100))


def _write(text: str) -> str:
    return f"{WORDS} {text}"


pydantic_ai.serve(
    Agent(pyd_model.local_model(lambda messages, _: [_write(pyd_model.asked(messages))], word_seconds=0.01)),
    name="pydantic_ai",
)
langgraph.serve(
    create_agent(lg_model.LocalModel(write=lambda messages: [_write(str(messages[-1].content))], word_seconds=0.01)),
    name="langgraph",
)


def _answer(given: Any, instructions: str) -> Any:
    return [oai_model.said(_write(oai_app.asked(given)))]


openai_agents.serve(SdkAgent("openai_agents", model=oai_model.LocalModel(_answer, word_seconds=0.01)))
