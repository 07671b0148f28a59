"""Tools for tests (`--app`) that show an article before it is saved."""

import asyncio
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from threadcast.profiles.payload_types import payload_type
from threadcast.tools.base import Payload, ToolResult
from threadcast.tools.context import Progress, ToolContext
from threadcast.tools.preview import Preview
from threadcast.tools.python import tool
from threadcast.tools.traits import Traits
from threadcast_protocol.wire.errors import ToolFailed

__all__ = ["Article", "article", "propose_article", "save_article"]


class Article(msgspec.Struct):
    """A text with a title."""

    title: Annotated[str, Meta(max_length=80)]
    seconds: float = 0


article = payload_type(name="article", model=Article, marker="ARTICLE", summary="{title}")


@tool(policy="preview", traits=Traits(payload_type="article", commit_tool="save_article"))
def propose_article(title: str, seconds: float = 0, object_id: str | None = None) -> Preview | ToolResult:
    """Propose an article to the user."""
    if not title:
        raise ToolFailed("An article needs a title.")
    if title == "bad":
        errors = Payload("article_validation_error", {"title": "not a good one"}, "1 error")
        return ToolResult(content="The title is not a good one.", failed=True, payloads=[errors])
    return Preview(f"Article {title!r}", {"title": title, "seconds": seconds}, object_id)


@tool()
async def save_article(ctx: ToolContext, title: str, seconds: float = 0, object_id: str | None = None) -> str:
    """Save an article, and return only after that many seconds."""
    home = Path(ctx.data_dir)
    home.mkdir(parents=True, exist_ok=True)
    with (home / "articles.txt").open("a") as file:
        file.write(f"{ctx.idempotency_key} {title}\n")
    ctx.report(Progress(message="written"))
    await asyncio.sleep(seconds)
    return f"saved {title!r} as {object_id or 'a new article'}"
