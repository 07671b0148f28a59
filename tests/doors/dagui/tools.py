"""Tools for the tests of the door of AG-UI, given to the server by `--app`."""

from typing import Any

from threadcast.tools.base import Payload, ToolResult
from threadcast.tools.context import Progress, ToolContext
from threadcast.tools.python import tool


@tool(policy="ask")
def secret(word: str = "") -> str:
    """Takes an argument that clients do not see."""
    return "kept"


@tool()
async def buy(context: ToolContext, item: str = "") -> ToolResult:
    """Adds an item to the client's cart, in two steps."""
    state: Any = context.context.get("ag_ui_state") or {}
    cart = [*state.get("cart", []), item]
    context.report(Progress(stage="paying", fraction=0.5))
    payloads = [Payload("ag_ui_state", {**state, "cart": cart}), Payload("ag_ui_state", {"cart": cart, "paid": True})]
    return ToolResult(content=f"bought {len(cart)}", payloads=[*payloads, Payload("receipt", {"items": cart})])


@tool()
async def which(context: ToolContext) -> str:
    """Asks a person."""
    return f"the answer is {await context.ask('Which?', ['left', 'right'])}"
