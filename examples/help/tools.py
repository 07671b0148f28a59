"""The tools of a help assistant: reports of a research library, and a search that reports its progress.

threadcast.toml says where each tool is offered. Only the role that may retract an article is set here, beside the code
that retracts it. The records are invented. `the_library` runs the library's API beside the server, so that the example
needs no second terminal.
"""

import time
from collections.abc import Generator
from typing import Annotated

import anyio
from library import PORT, serving

from threadcast import Payload, Progress, ToolContext, ToolFailed, ToolResult, Traits, companion, tool

REPORTS = {"r-7": {"title": "Sleep and memory", "author": "A. Moreau", "year": 2025}}

ARTICLES = {
    "a-1": {"id": "a-1", "report_id": "r-7", "title": "Naps and recall", "people": 48},
    "a-2": {"id": "a-2", "report_id": "r-7", "title": "A night without sleep", "people": 210},
}

PUBMED = [
    {"id": "pm-31", "title": "Naps in adults", "year": 2021},
    {"id": "pm-57", "title": "Naps in children", "year": 2024},
    {"id": "pm-12", "title": "Light at night", "year": 2019},
]

SHARD_SECONDS = 0.2
"""The duration of the search of an index, long enough that its progress is visible."""


@companion()
async def the_library(url: str) -> None:
    """Run the service that `my_loans` calls, until the server ends."""
    with serving(PORT):
        await anyio.sleep_forever()


@tool(retry="safe", label_arg="report_id")
def read_report(report_id: str) -> dict[str, object]:
    """Read a report: its title, author and year."""
    if report_id not in REPORTS:
        raise ToolFailed(f"There is no report {report_id!r}; there are {', '.join(REPORTS)}.")
    return REPORTS[report_id]


@tool(retry="safe", label_arg="report_id")
def list_articles(report_id: str) -> list[dict[str, object]]:
    """List the articles that a report is about."""
    return [article for article in ARTICLES.values() if article["report_id"] == report_id]


@tool(traits=Traits(required_role="editor"), label_arg="article_id")
def retract_article(article_id: str, ctx: ToolContext) -> str:
    """Mark an article as retracted."""
    return f"{article_id} is marked as retracted by {ctx.principal.id}."


@tool(retry="safe", label_arg="query")
def search_pubmed(query: Annotated[str, "a word of the title"]) -> Generator[Progress, None, ToolResult]:
    """Search PubMed by title. The user sees all that was found."""
    indexes = ["2010s", "2020s"]
    for done, name in enumerate(indexes):
        yield Progress(stage=name, message=f"searching the {name}", fraction=done / len(indexes))
        time.sleep(SHARD_SECONDS)
    hits = [record for record in PUBMED if query.lower() in str(record["title"]).lower()]
    data = {"query": query, "count": len(hits), "hits": hits}
    return ToolResult(content=f"{len(hits)} found and shown.", payloads=[Payload(type="search_results", data=data)])
