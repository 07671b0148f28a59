"""Mutations of the older wires (PROTOCOL §14) and of the foreign page's sidebar (§13)."""

import re
from collections.abc import Callable, Iterable

from tests.conformance.breaking import replacing, units
from tests.conformance.proxy import Mutation, Request, UnitChange

__all__ = ["OLDER_WIRES"]


def _streams_always(request: Request) -> None:
    if request.path in ("/chat", "/v1/agent/chat", "/api/chat/stream"):
        request.headers.pop("accept", None)


def _at(path: str) -> Callable[[Request], bool]:
    return lambda request: request.method == "POST" and request.path == path


def _dropping(pattern: bytes) -> UnitChange:
    """Drop the units that contain this text."""

    def unit(data: bytes) -> Iterable[bytes]:
        if not re.search(pattern, data):
            yield data

    return unit


def _and_again(pattern: bytes, more: bytes) -> UnitChange:
    """Send another unit after each unit that contains this text."""

    def unit(data: bytes) -> Iterable[bytes]:
        yield data
        if re.search(pattern, data):
            yield more

    return unit


OLDER_WIRES: dict[str, Mutation] = {
    "text-without-done": Mutation(
        "POST /chat never says done", ("oneshot-text",), unit=units(_at("/chat"), lambda: _dropping(rb"event: done"))
    ),
    "text-without-names": Mutation(
        "the frames of POST /chat have no event names",
        ("oneshot-text",),
        unit=units(_at("/chat"), lambda: replacing(rb"(?m)^event: .*\n", b"")),
    ),
    "text-without-id": Mutation(
        "no frame of POST /chat has an id",
        ("oneshot-text",),
        unit=units(_at("/chat"), lambda: replacing(rb"(?m)^id: .*\n", b"")),
    ),
    "text-trimmed": Mutation(
        "the texts of POST /chat lose their last space",
        ("oneshot-text",),
        unit=units(_at("/chat"), lambda: replacing(rb" \n\n$", b"\n\n")),
    ),
    "agent-after-the-end": Mutation(
        "POST /v1/agent/chat goes on after message_complete",
        ("oneshot-agent",),
        unit=units(
            _at("/v1/agent/chat"),
            lambda: _and_again(rb"event: message_complete", b'event: content_chunk\ndata: {"chunk":"more"}\n\n'),
        ),
    ),
    "page-without-marker": Mutation(
        "POST /api/chat/stream does not mark where a call stood",
        ("oneshot-page",),
        unit=units(_at("/api/chat/stream"), lambda: replacing(rb"\[\[tool:[^\]]*\]\]", b"")),
    ),
    "page-with-two-ends": Mutation(
        "POST /api/chat/stream says complete twice",
        ("oneshot-page",),
        unit=units(
            _at("/api/chat/stream"),
            lambda: _and_again(rb'"type":"complete"', b'data: {"type":"complete","payload":{}}\n\n'),
        ),
    ),
    "openai-without-done": Mutation(
        "POST /v1/chat/completions has no [DONE]",
        ("oneshot-openai",),
        unit=units(_at("/v1/chat/completions"), lambda: _dropping(rb"data: \[DONE\]")),
    ),
    "oneshot-never-json": Mutation(
        "Accept: application/json is ignored by the older wires", ("oneshot-text",), request=_streams_always
    ),
    "sidebar-misses-a-section": Mutation(
        "the sidebar begins without its tasks",
        ("foreign-gui",),
        unit=units(lambda request: request.path == "/v1/sidebar/subscribe", lambda: _dropping(rb'"section":"tasks"')),
    ),
}
