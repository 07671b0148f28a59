"""An agent of pydantic-ai: it looks up a balance, and asks a person before it charges the account. A local model stands
in for a provider's, so no key is needed.

./scripts/run --app examples/agents/pydantic_ai.py
"""

import asyncio
from collections.abc import AsyncIterator

from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ToolReturnPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, DeltaToolCalls, FunctionModel

from threadcast.agents.pydantic_ai import serve


async def respond(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str | DeltaToolCalls]:
    """Answer in place of a model: choose the next call from the results of the calls since the person's last
    message."""
    results: list[str] = []
    for part in (part for message in messages for part in message.parts):
        if isinstance(part, UserPromptPart):
            results.clear()
        elif isinstance(part, ToolReturnPart):
            results.append(part.model_response_str())
    call_id = f"call_{len(messages)}"
    if len(results) == 2:
        for word in " ".join(results).split(" "):
            yield f"{word} "
            await asyncio.sleep(0.05)
    elif results:
        yield {1: DeltaToolCall(name="charge", json_args='{"dollars": 7}', tool_call_id=call_id)}
    else:
        yield "I look at your account. "
        yield {1: DeltaToolCall(name="balance", json_args="{}", tool_call_id=call_id)}


def balance() -> str:
    """Look up the balance."""
    return "You had 40 dollars."


def charge(dollars: int) -> str:
    """Charge the account.

    Args:
        dollars: The amount.
    """
    return f"Charged {dollars} dollars."


model = FunctionModel(stream_function=respond)
bank = Agent(model, instructions="You help with accounts.", tools=[balance, charge])
serve(bank, name="teller", policies={"charge": "ask"})
