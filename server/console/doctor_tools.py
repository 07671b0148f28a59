"""What `threadcast doctor` finds about HTTP services that are tools: one line for each origin.

It only looks whether somebody listens there: a request could have effects, and which would be harmless nobody here
knows. Like all of the doctor, it never raises.
"""

from collections import defaultdict
from urllib.parse import urlsplit

import anyio

from server.console.doctor_mcp import McpFinding, seen_at
from server.settings import Settings

__all__ = ["tool_findings"]


async def tool_findings(settings: Settings, patience_seconds: float) -> list[McpFinding]:
    """In the order of the table; all are asked at once."""
    names: defaultdict[str, list[str]] = defaultdict(list)
    for name, tool in settings.tools.items():
        if tool.url and tool.enabled:
            parts = urlsplit(tool.url)
            names[f"{parts.scheme}://{parts.netloc}"].append(name)
    found: dict[str, McpFinding] = {}

    async def look(origin: str) -> None:
        seen = await seen_at("http tools", origin, patience_seconds)
        found[origin] = seen._replace(text=f"{', '.join(names[origin])}: {seen.text}")

    async with anyio.create_task_group() as tasks:
        for origin in names:
            tasks.start_soon(look, origin)
    return [found[origin] for origin in names]
