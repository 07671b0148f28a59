"""The three one-shot endpoints: each request posts one message, and its answer is the message's run (PROTOCOL §14).

An endpoint reads its body, follows the chat, posts an ordinary `user_message`, passes the run's events to a projection,
and sends the projection's frames. The chat is the same as if the command had been posted to
`/v1/chats/{chat_id}/commands`. All refusals are JSON answers, sent before the first byte of the stream.
"""

import secrets
import time
from collections.abc import Callable
from functools import partial
from typing import TypeAlias

from starlette.requests import Request
from starlette.responses import Response

from threadcast.api.blobs import THREAD_MIN_BYTES
from threadcast.api.edge import Edge, caller_of, read_json, release_body
from threadcast.api.operation import LIMITED, NOT_FOUND, UNAVAILABLE, Answer, Operation, Parameter
from threadcast.api.posting import lay_down
from threadcast.base.large_reads import in_large_read
from threadcast.compat.base import AWAITS_DECISION, RunSlice
from threadcast.compat.oneshot_bodies import (
    AgentChatRequest,
    Ask,
    Fresh,
    OnDisconnect,
    PageChatRequest,
    TextChatRequest,
    check_scope,
    read_agent_chat,
    read_page_chat,
    read_text_chat,
)
from threadcast.compat.run_answer import RunAnswer
from threadcast.profiles.endpoint_rules import NO_RULE
from threadcast.profiles.profile import Profiles
from threadcast.store.ports import ChatMeta
from threadcast_protocol.wire.errors import BadRequest, Conflict, Refused
from threadcast_protocol.wire.principal import Principal

__all__ = ["agent_chat", "page_chat", "text_chat"]

_Reader: TypeAlias = Callable[[bytes, Fresh, Profiles], Ask]


def _one_shot(path: str, operation_id: str, summary: str, body: type) -> Operation:
    """Return the operation of a one-shot endpoint. The endpoints differ only in their bodies and in the frames of their
    streams."""
    return Operation(
        "POST",
        path,
        operation_id,
        summary,
        tag="one-shot",
        body=body,
        parameters=[
            Parameter(
                "on_disconnect",
                OnDisconnect,
                "Whether the run is aborted when the client disconnects; also a key of the body.",
                default="abort",
            ),
            Parameter("mode", str, "A profile, if the operator allows callers to choose; also a key of the body."),
        ],
        answers={
            200: Answer(
                "Frames (PROTOCOL §14), until the run has ended; or one object for callers that prefer "
                "`application/json`.",
                dict,
                "text/event-stream",
            ),
            502: Answer(
                "Only in JSON answers: the run failed. The error has the form of the endpoint's own wire, and the body "
                "also has the fields of a 200 answer.",
                dict,
            ),
        },
        errors={
            400: "`bad_request` or `invalid_content`: a bad body or an unknown scope; nothing was stored.",
            409: "`conflict`: the chat waits for an approval, or, in JSON answers, this run does. `id_taken`: choose "
            "another chat id.",
            413: "`too_large`.",
        }
        | NOT_FOUND
        | LIMITED
        | UNAVAILABLE,
    )


@_one_shot("/chat", "textChat", "Send a message and stream its answer as text frames.", TextChatRequest)
async def text_chat(request: Request) -> Response:
    """`POST /chat`."""
    return await _answer(request, "/chat", read_text_chat)


@_one_shot("/v1/agent/chat", "agentChat", "Send a message and stream its run as named JSON frames.", AgentChatRequest)
async def agent_chat(request: Request) -> Response:
    """`POST /v1/agent/chat`."""
    return await _answer(request, "/v1/agent/chat", read_agent_chat)


@_one_shot(
    "/api/chat/stream",
    "pageChat",
    "Send a message and stream its run as typed frames; the last one holds the whole answer.",
    PageChatRequest,
)
async def page_chat(request: Request) -> Response:
    """`POST /api/chat/stream`."""
    return await _answer(request, "/api/chat/stream", read_page_chat)


async def _answer(request: Request, path: str, read: _Reader) -> Response:
    edge, principal = caller_of(request)
    body = await read_json(request, edge.limits.body_max_bytes)
    fresh = Fresh(f"chat-{secrets.token_hex(16)}", f"oneshot-{secrets.token_hex(12)}", int(time.time()))
    if len(body) > THREAD_MIN_BYTES:  # decoding 16 MB takes tens of milliseconds
        ask = await in_large_read(partial(read, body, fresh, edge.profiles))
    else:
        ask = read(body, fresh, edge.profiles)
    wish = request.query_params.get("on_disconnect", ask.on_disconnect or "abort")
    if wish not in ("abort", "detach"):
        raise BadRequest("on_disconnect must be abort or detach", path="/on_disconnect")
    rule = edge.endpoints.get(path, NO_RULE)
    wanted = rule.wanted(request.query_params.get("mode") or ask.mode, edge.profiles)
    meta = await _chat_of(edge, ask, principal)
    if meta is not None and meta.state == "paused":
        raise Conflict(AWAITS_DECISION)
    profile = edge.profiles.named(wanted or (rule.profile if meta is None else meta.mode))
    check_scope(ask, profile)
    release_body(request)
    new_mode = profile.name if meta is None and (wanted or rule.profile) else ""
    if meta is not None and wanted:
        ask = ask.in_mode(wanted)
    ask.projection.retry_text = profile.reply_guard.retry_text
    prefers_json = _prefers_json(request.headers.get("accept", ""))

    async def post(authorization: str | None) -> None:
        try:
            await lay_down(edge, principal, ask.chat_id, ask.command, authorization, new_mode=new_mode)
        except Refused as refusal:
            raise ask.in_body(refusal) from None

    return RunAnswer(
        edge,
        principal,
        ask.chat_id,
        ask.projection,
        RunSlice(ask.command.client_request_id),
        post=post,
        request_id=ask.command.client_request_id,
        wants_json=prefers_json if ask.wants_stream is None else not ask.wants_stream,
        detaches=wish == "detach",
        is_tagged=True,
    )


async def _chat_of(edge: Edge, ask: Ask, principal: Principal) -> ChatMeta | None:
    """Return the chat that the caller names; None for a chat that this request creates. Raises IdTaken if the request
    would create a chat whose id belongs to another principal. Raises NotFound if the caller has deleted the chat, or if
    the caller has no such chat and this endpoint does not create it."""
    if ask.is_new:
        return None
    if ask.makes_chat:
        return await edge.own_or_new(ask.chat_id, principal)
    return await edge.own(ask.chat_id, principal)


def _prefers_json(accept: str) -> bool:
    """Return whether the client prefers JSON (NET-9). A client that accepts both types gets the stream."""
    return "application/json" in accept and "text/event-stream" not in accept
