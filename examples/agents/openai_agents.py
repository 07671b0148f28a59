"""An agent of the OpenAI Agents SDK: it looks up a balance and hands over to a cashier, which asks a person before it
pays. A local model stands in for OpenAI's, so no key is needed.

./scripts/run --app examples/agents/openai_agents.py
"""

from collections.abc import AsyncIterator
from typing import Any

from agents import Agent, Model, ModelResponse, function_tool
from agents.items import TResponseOutputItem
from agents.testing import ScriptedModel, assistant_message, function_call

from threadcast.agents.openai_agents import serve


class LocalModel(Model):
    """Stands in for a model: it knows what to do from the outputs of the calls so far."""

    async def get_response(self, *asked: Any, **more: Any) -> ModelResponse:
        return await ScriptedModel([_next(asked[1])]).get_response(*asked, **more)

    def stream_response(self, *asked: Any, **more: Any) -> AsyncIterator[Any]:
        return ScriptedModel([_next(asked[1])]).stream_response(*asked, **more)


def _next(items: list[Any]) -> list[TResponseOutputItem]:
    """Return the next response to the last message of a person."""
    begin = max(at for at, item in enumerate(items) if item.get("role") == "user")
    outputs = [item["output"] for item in items[begin:] if item.get("type") == "function_call_output"]
    ids = {"item_id": f"item_{len(items)}"}  # each item and each call of a chat has an id of its own
    if not outputs:
        return [
            assistant_message("I look at your account. ", **ids),
            function_call("balance", {}, call_id=f"call_{len(items)}"),
        ]
    if len(outputs) == 1:
        return [function_call("transfer_to_cashier", {}, call_id=f"call_{len(items)}")]
    if len(outputs) == 2:
        return [function_call("charge", {"dollars": 7}, call_id=f"call_{len(items)}")]
    return [assistant_message(f"{outputs[0]} {outputs[-1]}", **ids)]


@function_tool
def balance() -> str:
    """Look up the balance."""
    return "You had 40 dollars."


@function_tool
def charge(dollars: int) -> str:
    """Charge the account.

    Args:
        dollars: The amount.
    """
    return f"Charged {dollars} dollars."


cashier = Agent("cashier", instructions="You charge accounts.", model=LocalModel(), tools=[charge])
bank = Agent("bank", instructions="You help with accounts.", model=LocalModel(), tools=[balance], handoffs=[cashier])
serve(bank, policies={"charge": "ask"})
