"""The doors: the formats of other servers, each in a package of its own below `compat/`.

A door's package is imported only if the door is open, so a closed door costs nothing. Its module `routes` lists its
endpoints. docs/adapters.md describes each door's mapping and its limits.
"""

from collections.abc import Iterable
from importlib import import_module

from starlette.routing import BaseRoute

from threadcast.settings.doors import DoorName

__all__ = ["BUILT", "door_routes"]

BUILT: dict[DoorName, str] = {
    "openai": "threadcast.compat.openai.routes",
    "responses": "threadcast.compat.responses.routes",
    "ai_sdk": "threadcast.compat.ai_sdk.routes",
    "ag_ui": "threadcast.compat.ag_ui.routes",
    "mcp": "threadcast.compat.mcp.routes",
}
"""The module with the endpoints of each door."""


def door_routes(doors: Iterable[DoorName]) -> list[BaseRoute]:
    """Return the routes of these doors."""
    return [route for name in doors for route in import_module(BUILT[name]).ROUTES]
