"""An agent without a model: it orders what people ask for, and asks a person before it pays.

./scripts/run --config examples/agents/threadcast.toml
"""

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path

from threadcast import Call, Data, Round, ToolContext, agent, tool

PRICES = {"tea": 3, "cake": 4}
"""Dollars."""


@tool(policy="ask")
def charge(dollars: int, ctx: ToolContext) -> str:
    """Charge the guest's card.

    Args:
        dollars: The amount.
    """
    receipts = Path(ctx.data_dir) / "receipts.txt"
    receipts.parent.mkdir(parents=True, exist_ok=True)
    with receipts.open("a") as file:
        file.write(f"{dollars}\n")
    return f"Charged {dollars} dollars."


@agent("waiter", title="Waiter", tools=[charge])
async def waiter(round: Round) -> AsyncIterator[object]:
    """Takes orders of tea and cake."""
    last = round.messages[-1]
    if last.role == "tool":  # the round after a call has the result of `charge`, or the person's refusal
        yield f"{last.content} Enjoy it!"
        return
    wanted = [item for item in re.findall(r"\w+", str(last.content).lower()) if item in PRICES]
    if not wanted:
        for word in ["We", "have", "tea", "for", "3", "dollars", "and", "cake", "for", "4."]:
            yield f"{word} "
            await asyncio.sleep(0.05)
        return
    yield Data("order", {"items": wanted})
    yield f"{' and '.join(wanted).capitalize()}, very well. "
    yield Call("charge", {"dollars": sum(PRICES[item] for item in wanted)})
