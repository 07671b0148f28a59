"""Tools that the owner's chats use: they hold secrets in arguments, results, progress and memory."""

from tests.integration.preview_tools import Article, article, propose_article, save_article
from threadcast.tools.agents import delegate
from threadcast.tools.base import ToolResult
from threadcast.tools.context import Progress, ToolContext
from threadcast.tools.python import tool

__all__ = ["Article", "article", "delegate", "keep_secret", "propose_article", "save_article"]


@tool(policy="ask", category="editing", label_arg="word")
def keep_secret(ctx: ToolContext, word: str, memory: str) -> ToolResult:
    """Keep a secret."""
    ctx.report(Progress(stage="keeping", message=f"keeping {word}"))
    return ToolResult(content=f"kept {word}", memory_patch={"kept": memory}, metadata_patch={"kept": word})
