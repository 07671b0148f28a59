"""Tools for `test_approvals.py`: a server in a separate process loads this file."""

from threadcast import tool
from threadcast.tools.agents import delegate

__all__ = ["delegate", "open_safe", "pay", "read_page", "wire_money"]


@tool(policy="ask")
def pay(amount: int) -> str:
    """Pay money."""
    return f"paid {amount}"


@tool(policy="ask", hide_input=True)
def open_safe(code: str) -> str:
    """Open the safe."""
    return f"open after {len(code)} digits"


@tool(retry="safe")
def read_page(text: str) -> str:
    """Read a page with untrusted text."""
    return text


@tool()
def wire_money(amount: int) -> str:
    """Send money."""
    return f"wired {amount}"
