"""Tools for `test_tools.py`: some that need an approval, one that reports its progress, one that proposes a change, and
two that start other chats."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

from threadcast import Preview, Progress, ToolResult, Traits, tool
from threadcast.tools.agents import delegate, start_agent

__all__ = [
    "delegate",
    "index_pages",
    "propose_article",
    "save_article",
    "send_invoice_with_line_items_to_customer_and_accountant",
    "send_mail",
    "send_parcel",
    "start_agent",
]


@tool(policy="ask")
def send_mail(to: str, text: str = "") -> str:
    """Send a mail."""
    return f"sent to {to}"


@tool(policy="ask")
def send_parcel(to: str) -> str:
    """Send a parcel."""
    return f"parcel for {to}"


@tool(policy="ask")
def send_invoice_with_line_items_to_customer_and_accountant() -> str:
    """Send an invoice. The tool has a long name and no arguments to show beside the name."""
    return "sent"


@tool(retry="safe", timeout_seconds=60)
async def index_pages(go_on: str) -> AsyncIterator[Progress | ToolResult]:
    """Index pages: report a quarter, and continue when the file `go_on` exists."""
    yield Progress(stage="reading", message="reading page 1 of 4", fraction=0.25)
    while not Path(go_on).exists():
        await asyncio.sleep(0.02)
    yield ToolResult(content="4 pages")


@tool(policy="preview", traits=Traits(payload_type="article", commit_tool="save_article"))
def propose_article(title: str, body: str) -> Preview:
    """Propose an article."""
    return Preview(f"Article {title!r}", {"title": title, "body": body}, "a-1")


@tool()
def save_article(title: str, body: str, object_id: str | None = None) -> str:
    """Save an article."""
    return f"saved {title} as {object_id}"
