"""What `threadcast doctor` finds about the configured MCP servers: one line each.

A running server is asked how it fares with them; else it is only looked whether they could be started or reached.
Like all of the doctor, it starts nothing and never raises.
"""

import shutil
from importlib.util import find_spec
from typing import Literal, NamedTuple, TypeAlias
from urllib.parse import urlsplit

import anyio
import msgspec

from protocol.schema.answers import McpResources
from server.settings import Mcp, Settings
from threadcast import Client, Unreachable

__all__ = ["McpFinding", "Verdict", "mcp_findings", "seen_at"]

Verdict: TypeAlias = Literal["ok", "note", "fail"]

ASKING_SECONDS = 20.0
"""A running server waits for slow MCP servers before it answers."""

_resources = msgspec.json.Decoder(McpResources)


class McpFinding(NamedTuple):
    verdict: Verdict
    what: str
    text: str


async def mcp_findings(settings: Settings, served: Client | None, patience_seconds: float) -> list[McpFinding]:
    """`served`: a running server of ours, None when there is none."""
    errors = await _errors_told_by(served) if served is not None and settings.mcp else None
    found: list[McpFinding] = []
    for name, server in settings.mcp.items():
        what = f"mcp.{name}"
        if not server.enabled:
            found.append(McpFinding("note", what, "switched off: enabled = false"))
        elif find_spec("mcp") is None:
            found.append(McpFinding("fail", what, "the extra is missing: pip install 'threadcast[mcp]'"))
        elif errors is not None:
            wrong = errors.get(name)
            found.append(McpFinding("fail" if wrong else "ok", what, wrong or "it answers the server that runs here"))
        else:
            found.append(await _seen_from_here(what, server, patience_seconds))
    return found


async def _errors_told_by(served: Client) -> dict[str, str] | None:
    """What is wrong, by server; None when nobody said."""
    try:
        with anyio.fail_after(ASKING_SECONDS):
            answer = await served.request("GET", "/v1/mcp/resources")
        return {error.server: error.error for error in _resources.decode(answer.content).errors}
    except (Unreachable, TimeoutError, msgspec.MsgspecError):
        return None


async def _seen_from_here(what: str, server: Mcp, patience_seconds: float) -> McpFinding:
    if server.command:
        program = shutil.which(server.command)
        if program is None:
            return McpFinding("fail", what, f"{server.command}: no such program; is it installed, and on the PATH?")
        return McpFinding("ok", what, f"will run {program}")
    return await seen_at(what, server.url, patience_seconds)


async def seen_at(what: str, url: str, patience_seconds: float) -> McpFinding:
    """Does anybody listen where this URL leads? Nothing is asked."""
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    place = f"{parts.hostname}:{port}"
    try:
        with anyio.fail_after(patience_seconds):
            stream = await anyio.connect_tcp(parts.hostname or "", port)
        await stream.aclose()
    except (OSError, TimeoutError):
        return McpFinding("fail", what, f"nobody listens at {place}; is the server running?")
    return McpFinding("ok", what, f"somebody listens at {place}")
