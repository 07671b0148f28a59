"""All other endpoints in the OpenAPI document: about the server, for operators, for clients of foreign and older wires.

Written by hand as those of `chat_paths.py`, and held to the routes by the same test.
"""

from protocol.messages import JsonObject
from protocol.schema.operations import (
    BAD_ID,
    CHAT_ID,
    NOT_FOUND,
    UNAVAILABLE,
    failure,
    json_answer,
    operation,
    query_parameter,
    question,
    ref,
    stream_answer,
    text_answer,
)


def server_paths() -> JsonObject:
    return {
        "/v1/trajectories": {
            "get": operation(
                "listTrajectories",
                "foreign",
                "`GET /v1/chats` in the words of a foreign GUI.",
                {
                    "200": json_answer("One page.", "TrajectoryList"),
                    "400": failure("`bad_request`: a parameter out of bounds."),
                    "503": UNAVAILABLE,
                },
                parameters=[
                    query_parameter("limit", {"type": "integer", "minimum": 1, "maximum": 200, "default": 50}),
                    query_parameter("cursor", {"type": "string"}, "`next_cursor` of the page before."),
                ],
            )
        },
        "/v1/trajectories/{chat_id}": {
            "parameters": [CHAT_ID],
            "get": operation(
                "readTrajectory",
                "foreign",
                "The thread's parameters and the messages of the active path, in one object.",
                {
                    "200": json_answer("The chat.", "TrajectoryChat"),
                    "400": BAD_ID,
                    "404": NOT_FOUND,
                    "503": UNAVAILABLE,
                },
            ),
            "delete": operation(
                "deleteTrajectory",
                "foreign",
                "Delete the chat and all that it holds.",
                {"200": json_answer("Gone.", "Status"), "400": BAD_ID, "404": NOT_FOUND, "503": UNAVAILABLE},
            ),
        },
        "/v1/sidebar/subscribe": {
            "get": operation(
                "sidebar",
                "foreign",
                "The feed in the envelope of a foreign GUI.",
                {"200": stream_answer("SidebarFrame"), "503": UNAVAILABLE},
            )
        },
        "/chat": {"post": _one_shot("textChat", "A message in, its answer as raw text frames.", "TextChatRequest")},
        "/v1/agent/chat": {
            "post": _one_shot("agentChat", "A message in, its run as named JSON frames.", "AgentChatRequest")
        },
        "/api/chat/stream": {
            "post": _one_shot("pageChat", "A message in, typed frames, and a whole payload last.", "PageChatRequest")
        },
        "/v1/chat/completions": {
            "post": _one_shot("chatCompletions", "OpenAI's wire over a chat of this server.", "CompletionsRequest")
        },
        "/v1/session": {
            "get": question("readSession", "Who is calling.", "Session"),
            "post": operation(
                "openSession",
                "server",
                "Sign in: the page gets the token of `Authorization` as a cookie that scripts cannot read.",
                {"200": json_answer("Who that is.", "Session")},
            ),
            "delete": operation(
                "closeSession",
                "server",
                "Sign out: the cookie is taken back.",
                {"200": json_answer("Signed out.", "Status")},
                is_open=True,
            ),
        },
        "/v1/caps": {"get": question("readCaps", "Models, profiles, types and limits.", "Capabilities")},
        "/v1/ping": {
            "get": operation(
                "ping", "server", "Is anybody there?", {"200": text_answer("`pong`.", "text/plain")}, is_open=True
            )
        },
        "/v1/tools": {
            "get": operation(
                "listTools",
                "server",
                "The tools that this caller's models may be offered.",
                {
                    "200": json_answer("The tools.", "ToolInfo", is_list=True),
                    "400": failure("`bad_request`: no such profile, or no such scope in it."),
                },
                parameters=[
                    query_parameter("mode", {"type": "string"}, "A profile; unset with `scope`: the default one."),
                    query_parameter("scope", {"type": "string"}, "A place in it, such as `reports/articles`."),
                ],
            )
        },
        "/v1/mcp/resources": {
            "get": question("listMcpResources", "What MCP servers offer to be attached.", "McpResources")
        },
        "/v1/mcp/prompts": {"get": question("listMcpPrompts", "The prompts of MCP servers.", "McpPrompts")},
        "/v1/chat-modes": {
            "get": operation(
                "listChatModes",
                "server",
                "The profiles that `mode` may name.",
                {
                    "200": json_answer("The profiles that `mode` may name, as they are in the place.", "ChatModes"),
                    "400": failure("`bad_request`: `scope` is no scope."),
                },
                parameters=[
                    query_parameter("scope", {"type": "string"}, "A place, such as `reports/articles`; unset: none."),
                ],
            )
        },
        "/v1/providers": {"get": question("listProviders", "Where models come from.", "Providers")},
        "/readyz": {
            "get": operation(
                "readiness",
                "server",
                "Does the store answer and accept writes?",
                {"200": json_answer("Ready.", "Health"), "503": json_answer("Not ready, and why.", "Health")},
                is_open=True,
            )
        },
        "/livez": {
            "get": operation(
                "liveness", "server", "Does the process answer?", {"200": json_answer("Alive.", "Health")}, is_open=True
            )
        },
        "/metrics": {
            "get": operation(
                "metrics",
                "server",
                "Counters and gauges for Prometheus.",
                {"200": text_answer("The metrics.", "text/plain")},
            )
        },
    }


def _one_shot(name: str, summary: str, body: str) -> JsonObject:
    stream = text_answer("Frames of this wire (PROTOCOL §14), closed after the last one.", "text/event-stream")
    stream["content"]["application/json"] = {"schema": {"type": "object"}}
    return operation(
        name,
        "one-shot",
        summary,
        {
            "200": stream,
            "400": failure("`bad_request` or `invalid_content`: a bad body or an unknown scope; nothing was kept."),
            "404": NOT_FOUND,
            "409": failure("`conflict`: the chat waits for a person's decision. JSON answers: so does this run."),
            "413": failure("`too_large`."),
            "429": failure("`queue_full` or `rate_limited`; try later.", retry_after=True),
            "502": failure("JSON answers only: the run failed. The payload of this wire stands beside these keys."),
            "503": UNAVAILABLE,
        },
        parameters=[
            {
                "name": "on_disconnect",
                "in": "query",
                "description": "What the caller's leaving means for its run; also a key of the body.",
                "schema": {"enum": ["abort", "detach"], "default": "abort"},
            },
            query_parameter(
                "mode", {"type": "string"}, "A profile, where the operator allows it; also a key of the body."
            ),
        ],
        body={"required": True, "content": {"application/json": {"schema": ref(body)}}},
    )
