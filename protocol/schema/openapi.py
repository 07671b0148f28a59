"""The OpenAPI 3.1 document: every endpoint that this version serves, its parameters and all its answers.

The shapes come from the structs (`shapes.py`, `answers.py`), the endpoints from two tables (`chat_paths.py`,
`server_paths.py`) that a test of the edge holds to its routes.
"""

from protocol.messages import JsonObject
from protocol.schema import answers, requests, traces
from protocol.schema.chat_paths import chat_paths
from protocol.schema.links import add_links
from protocol.schema.operations import REF
from protocol.schema.server_paths import server_paths
from protocol.schema.shapes import TRANSIENTS, command_components, event_components, transient_event, wire_event

__all__ = ["openapi_document"]

_VERSION = "1"
"""Of the wire, not of the product: fields are added without a change of this number."""

_BODIES = (
    answers.Failure,
    answers.Receipt,
    answers.Status,
    answers.BlobStored,
    answers.Health,
    answers.Session,
    answers.Approvals,
    answers.Params,
    answers.ChatList,
    answers.ChatSnapshot,
    answers.ChatTree,
    answers.FeedItem,
    answers.ImportReport,
    answers.TrajectoryChat,
    answers.TrajectoryList,
    answers.SidebarFrame,
    answers.Capabilities,
    answers.ToolInfo,
    answers.McpResources,
    answers.McpPrompts,
    answers.ChatModes,
    answers.Providers,
    requests.TextChatRequest,
    requests.AgentChatRequest,
    requests.PageChatRequest,
    requests.CompletionsRequest,
    answers.StreamChange,
    answers.TypingNotice,
    traces.TracedRuns,
    traces.RunTrace,
)


def openapi_document() -> JsonObject:
    event, components = event_components(REF, (*_BODIES, *TRANSIENTS))
    command, command_parts = command_components(REF)
    components.update(command_parts)
    components["WireEvent"] = wire_event(event)
    components["TransientEvent"] = transient_event(REF)
    components["Command"] = {"title": "Command", **command}
    paths = {**chat_paths(), **server_paths()}
    add_links(paths)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Threadcast",
            "version": _VERSION,
            "description": "Typed commands in, one sequenced log per chat, the same answer in every tab. "
            "The contract in words is PROTOCOL.md.",
            "license": {"name": "MIT", "identifier": "MIT"},
        },
        "security": [{"bearer": []}, {}],
        "tags": [{"name": name} for name in ("chats", "commands", "stream", "server", "foreign", "one-shot")],
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {
                "bearer": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "Needed once tokens are configured; without any, the server is local only.",
                }
            },
        },
    }
