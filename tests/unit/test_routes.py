"""The table of URLs and the OpenAPI document say the same."""

import json
from pathlib import Path

from server.api.routes import ROUTES

OPENAPI = Path(__file__).parents[2] / "protocol/schema/openapi.json"


def test_every_route_is_documented_and_every_documented_path_is_routed() -> None:
    documented = {
        (path, method.upper())
        for path, operations in json.loads(OPENAPI.read_text())["paths"].items()
        for method in operations
        if method in ("get", "post", "delete")
    }
    # Starlette takes HEAD wherever it takes GET.
    routed = {(route.path_format, method) for route in ROUTES for method in (route.methods or set()) - {"HEAD"}}
    assert routed == documented
