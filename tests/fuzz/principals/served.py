"""The processes that the fuzzing client attacks: two web processes and a worker over one private store."""

import hashlib
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import get_args

from tests.support.fleet import Fleet, fleet_on_new_store
from tests.support.server import ROOT
from threadcast.settings.serving import Permission

__all__ = ["CLERK", "OWNER", "STRANGER", "TOKENS", "bearer", "served"]

OWNER, STRANGER, CLERK = "owner", "stranger", "clerk"
"""The callers: the owner has secrets; the stranger is another principal with every permission; the clerk is the owner's
principal with a token that has no permission."""

TOKENS = {name: f"token-of-the-{name}-6b1f0c9e" for name in (OWNER, STRANGER, CLERK)}

_ALL = json.dumps(sorted(get_args(Permission)))
_CALLERS = {OWNER: (OWNER, _ALL), STRANGER: (STRANGER, _ALL), CLERK: (OWNER, "[]")}

_CONFIG = """
[models]
default = "demo/echo?rate=0"
demo = true

[limits]
tool_timeout_seconds = 600
turns_per_hour = 0
turns_per_day = 0
unauthorized_per_minute = 1_000_000

[tools.open_file]
policy = "client"
description = "Opens a file in the editor."
timeout_seconds = 3600

[profiles.agent]
payloads = ["article"]

[mcp.desk]
command = "{python}"
args = ["{server}", "stdio"]
resources = "any"
prompts = "any"
""" + "".join(
    f'\n[[auth.tokens]]\nid = "{principal}"\nsha256 = "{hashlib.sha256(TOKENS[name].encode()).hexdigest()}"\n'
    f"permissions = {permissions}\n"
    for name, (principal, permissions) in _CALLERS.items()
)

_TOOLS = Path(__file__).with_name("tools.py")


def bearer(name: str) -> dict[str, str]:
    """Return the header by which that caller signs in."""
    return {"Authorization": f"Bearer {TOKENS[name]}"}


@asynccontextmanager
async def served(base: Path) -> AsyncIterator[Fleet]:
    """Run the fleet until the block ends. All processes write to `fleet.log`."""
    config = base / "threadcast.toml"
    server = ROOT / "tests" / "integration" / "mcp_servers.py"
    config.write_text(_CONFIG.replace("{python}", sys.executable).replace("{server}", str(server)))
    with fleet_on_new_store(base, "--config", str(config), "--app", str(_TOOLS)) as fleet:
        await fleet.open(1)
        await fleet.add_web()
        yield fleet
