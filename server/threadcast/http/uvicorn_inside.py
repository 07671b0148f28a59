"""The classes inside uvicorn that this server uses directly, and whether the installed uvicorn has them as expected.

uvicorn does not promise to keep these classes, so `server/pyproject.toml` allows only one release series of uvicorn. If
another version is installed all the same and its classes differ, the names below stand for a class without instances.
Requests then go through plain ASGI, which takes more CPU, and `report_misfit` logs the reason at start-up.
"""

from typing import TYPE_CHECKING

import structlog
import uvicorn

__all__ = ["HTTP", "MISFIT", "HttpToolsProtocol", "RequestResponseCycle", "report_misfit"]

_log = structlog.get_logger()

_ATTRIBUTES = {
    "HttpToolsProtocol": (
        "client",
        "cycle",
        "flow",
        "headers",
        "logger",
        "loop",
        "pipeline",
        "timeout_keep_alive",
        "timeout_keep_alive_task",
        "transport",
    ),
    "RequestResponseCycle": (
        "chunked_encoding",
        "disconnected",
        "flow",
        "keep_alive",
        "message_event",
        "response_complete",
        "response_started",
        "transport",
    ),
}
"""Attributes of instances that `http/` uses; `__init__` sets all of them."""

_PROTOCOL_METHODS = (
    "connection_made",
    "connection_lost",
    "data_received",
    "on_message_begin",
    "on_url",
    "on_header",
    "on_headers_complete",
    "on_body",
    "on_message_complete",
    "on_response_complete",
    "pause_writing",
    "send_400_response",
    "timeout_keep_alive_handler",
)
"""Methods of `HttpToolsProtocol` that `http/connections.py` overrides or calls."""

_SERVER_METHODS = ("capture_signals", "serve", "shutdown", "startup")


class _Absent:
    """Stands for a class of uvicorn that is missing or differs; it has no instances."""


def _missing() -> str:
    """Return what the installed uvicorn lacks, as the end of a sentence; '' if it has everything."""
    try:
        from uvicorn.protocols.http import httptools_impl
    except ImportError:
        return "it has no uvicorn.protocols.http.httptools_impl"
    for name, attributes in _ATTRIBUTES.items():
        found = getattr(httptools_impl, name, None)
        if found is None:
            return f"it has no {name}"
        for attribute in attributes:
            if attribute not in found.__init__.__code__.co_names:
                return f"its {name} has no {attribute}"
    for method in _PROTOCOL_METHODS:
        if not hasattr(httptools_impl.HttpToolsProtocol, method):
            return f"its HttpToolsProtocol has no {method}"
    for method in _SERVER_METHODS:
        if not hasattr(uvicorn.Server, method):
            return f"its Server has no {method}"
    names = (*uvicorn.Server.__init__.__code__.co_names, *uvicorn.Server.startup.__code__.co_names)
    return next((f"its Server has no {name}" for name in ("servers", "server_state") if name not in names), "")


MISFIT = _missing()
"""The first class or attribute that the installed uvicorn lacks; '' if it has all of them."""

if TYPE_CHECKING or not MISFIT:
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
else:
    HttpToolsProtocol = RequestResponseCycle = _Absent

HTTP = "auto" if MISFIT else "httptools"
"""The parser that uvicorn uses. If the protocol class for httptools is missing, `auto` takes another class."""


def report_misfit() -> None:
    """Log what the installed uvicorn lacks. Call this once, when the server starts."""
    if MISFIT:
        text = (
            f"uvicorn {uvicorn.__version__} differs from the versions that this server was made for: {MISFIT}. Events "
            "go through plain ASGI, which takes more CPU. Install the version that threadcast requires: "
            "pip install --force-reinstall threadcast"
        )
        _log.warning("uvicorn.advice", text=text)
