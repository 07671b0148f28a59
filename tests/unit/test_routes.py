"""The list of endpoints is the OpenAPI document's only source of paths."""

import pytest

from threadcast.api.schema import openapi_document
from threadcast.routes import all_endpoints

PATHS = openapi_document()["paths"]


def test_every_route_is_in_the_document_and_nothing_else() -> None:
    documented = {(path, method.upper()) for path, item in PATHS.items() for method in item}
    # Starlette accepts HEAD wherever it accepts GET.
    assert {
        (route.path_format, method) for route in all_endpoints() for method in (route.methods or set()) - {"HEAD"}
    } == documented


@pytest.mark.parametrize("path", ["/v1/chats/subscribe", "/v1/chats/feed", "/v1/sidebar/subscribe"])
def test_an_event_stream_takes_no_head_request(path: str) -> None:
    (route,) = [route for route in all_endpoints() if route.path_format == path]
    assert route.methods == {"GET"}
