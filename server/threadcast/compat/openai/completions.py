"""`POST /v1/chat/completions`: finds the chat of a request, posts its commands, and streams the run (PROTOCOL §14).

The chat is named by `metadata.chat_id` or by the operator's header. Without such a name, the request's chat is the chat
whose tool calls the request answers, or, if the operator has enabled this, a chat whose path equals the history. Any
other request begins a chat that contains the given history. With `store: false`, and for a task that a front end asks
beside a conversation, such as a title, the new chat is temporary (PROTOCOL §16).
"""

import secrets
import time
from functools import partial
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from threadcast.api.blobs import THREAD_MIN_BYTES
from threadcast.api.edge import Edge, caller_of, read_json, release_body
from threadcast.api.operation import LIMITED, NOT_FOUND, UNAVAILABLE, Answer, Operation, Parameter
from threadcast.api.posting import lay_down
from threadcast.base.large_reads import in_large_read
from threadcast.chat.owner_state import OwnerState
from threadcast.compat.base import AWAITS_DECISION, RunSlice
from threadcast.compat.foreign_ids import chat_id_of
from threadcast.compat.oneshot_bodies import OnDisconnect
from threadcast.compat.openai.chunks import OpenAIChunks
from threadcast.compat.openai.errors import error_of
from threadcast.compat.openai.histories import Relation, relation_of, turns_of_path, turns_of_request
from threadcast.compat.openai.models import params_of_model
from threadcast.compat.openai.requests import USER_MAX_CHARACTERS, CompletionsRequest, Wish, read_completions
from threadcast.compat.run_answer import RunAnswer
from threadcast.profiles.endpoint_rules import NO_RULE
from threadcast.store.load import load_folded
from threadcast.store.ports import ChatMeta
from threadcast_protocol.fold.snapshot import active_path
from threadcast_protocol.wire.commands import (
    Command,
    IdeToolResult,
    RestoreMessages,
    RetryFromIndex,
    SetParams,
    UserMessage,
)
from threadcast_protocol.wire.errors import BadRequest, Conflict, IdTaken, Refused
from threadcast_protocol.wire.messages import JsonObject
from threadcast_protocol.wire.principal import Principal

__all__ = ["CHAT_ID_HEADER", "chat_completions"]

PATH = "/v1/chat/completions"
USER_KEY = "openai_user"
"""The key in a thread's metadata that holds the front end's user for whom a request created the chat."""

CHAT_ID_HEADER = "X-Threadcast-Chat-Id"
"""The header of answers with the chat's id on this server."""

MATCHED_MAX_CHATS = 20
"""The number of a caller's newest chats that are compared with a history. Loading one chat takes milliseconds. Front
ends continue recent conversations; an older conversation becomes a new chat that holds the history."""


class Target(NamedTuple):
    """The chat of a request. `meta` is None for a chat that the request creates. `state` is the state of an existing
    chat, and `relation` tells how the request's history relates to this chat. `is_side` is true if the request names a
    chat but does not belong to its conversation."""

    chat_id: str
    meta: ChatMeta | None = None
    state: OwnerState | None = None
    relation: Relation = "same"
    is_side: bool = False


@Operation(
    "POST",
    PATH,
    "chatCompletions",
    "Send a message to a chat of this server in the format of OpenAI's Chat Completions.",
    tag="doors",
    body=CompletionsRequest,
    parameters=[
        Parameter(
            "on_disconnect",
            OnDisconnect,
            "Whether the run is aborted when the client disconnects; also a key of the body. By default the setting of "
            "the door.",
        ),
        Parameter("mode", str, "A profile, if the operator allows callers to choose; also a key of the body."),
    ],
    answers={
        200: Answer(
            "Chunks until the run has ended, or one completion if `stream` is not true.", dict, "text/event-stream"
        ),
        502: Answer("Without `stream`: the run failed. The body is OpenAI's error object.", dict),
    },
    errors={
        400: "`bad_request` or `invalid_content`: a bad body, or a field that does not reach a provider.",
        409: "`conflict`: the chat waits for an approval, or the calls that the request answers no longer wait. "
        "`id_taken`: choose another chat id.",
        413: "`too_large`.",
    }
    | NOT_FOUND
    | LIMITED
    | UNAVAILABLE,
    error_form=error_of,
)
async def chat_completions(request: Request) -> Response:
    """`POST /v1/chat/completions`."""
    edge, principal = caller_of(request)
    body = await read_json(request, edge.limits.body_max_bytes)
    is_large = len(body) > THREAD_MIN_BYTES  # decoding 16 MB takes tens of milliseconds
    wish = await in_large_read(partial(read_completions, body)) if is_large else read_completions(body)
    detaches = _detaches(request, edge, wish)
    header = edge.doors.openai.chat_id_header
    by_header = request.headers.get(header, "") if header and wish.named is None else ""
    model = await params_of_model(edge, wish.model)
    rule = edge.endpoints.get(PATH, NO_RULE)
    mode = rule.wanted(request.query_params.get("mode") or wish.mode, edge.profiles)
    user = _user_of(request, edge, wish)
    target = await _target_of(edge, principal, wish, by_header, user)
    if target.meta is not None and target.meta.state == "paused":
        raise Conflict(AWAITS_DECISION)
    params: JsonObject = {**wish.params, **model, **({"mode": mode} if mode else {})}
    if wish.tools:  # a caller that sends no results of its tools does not read an answer either
        params["on_client_timeout"] = "stop"
    request_id = f"openai-{secrets.token_hex(12)}"
    run_id = _open_run_of(wish, target)
    commands = _results(wish, target) if wish.is_continuation else _commands(wish, target, params, request_id, user)
    new_mode = ""
    if target.meta is None:
        wanted = params.get("mode") or rule.profile
        new_mode = edge.profiles.named(str(wanted)).name if wanted else ""
    release_body(request)
    chat_id = target.chat_id
    projection = OpenAIChunks(
        chat_id,
        f"chatcmpl-{request_id}",
        model=wish.model or edge.profiles.default_model,
        created_seconds=int(time.time()),
        with_usage=wish.with_usage,
        tools={tool.name for tool in wish.tools},
        link=f"{edge.public_url.rstrip('/')}/c/{chat_id}",
        shown_id=(wish.named or "") if not target.is_side else "",
    )

    async def post(authorization: str | None) -> None:
        for command in commands:
            try:
                is_first = command is commands[0]
                await lay_down(edge, principal, chat_id, command, authorization, new_mode=new_mode if is_first else "")
            except Refused as refusal:
                raise _in_body(refusal, command, wish) from None

    return RunAnswer(
        edge,
        principal,
        chat_id,
        projection,
        RunSlice("" if wish.is_continuation else request_id, run_id),
        post=post,
        request_id=request_id,
        joins=wish.is_continuation,
        wants_json=not wish.is_stream,
        detaches=detaches,
        is_tagged=True,
        more={CHAT_ID_HEADER: chat_id},
    )


def _detaches(request: Request, edge: Edge, wish: Wish) -> bool:
    wanted = request.query_params.get("on_disconnect", wish.on_disconnect)
    if wanted is None:
        return edge.doors.openai.on_disconnect == "continue"
    if wanted not in ("abort", "detach"):
        raise BadRequest("on_disconnect must be abort or detach", path="/on_disconnect")
    return wanted == "detach"


def _user_of(request: Request, edge: Edge, wish: Wish) -> str:
    """Return the front end's user from the operator's header or from the body. Raises BadRequest."""
    header = edge.doors.openai.user_header
    user = (request.headers.get(header, "") if header else "") or wish.user
    if len(user) > USER_MAX_CHARACTERS:
        raise BadRequest(f"{header}: the name of a user has at most {USER_MAX_CHARACTERS} characters")
    return user


async def _target_of(edge: Edge, principal: Principal, wish: Wish, by_header: str, user: str) -> Target:
    """Find the chat of the request.

    Raises:
        NotFound: the request answers calls of a chat that the caller does not have, or the caller has deleted the chat.
        IdTaken: another principal has a chat of the named id.
        BadRequest: the id is too long, or results name no chat.
    """
    named = wish.named or by_header
    if named:
        path = "/metadata/chat_id" if wish.named else ""
        chat_id = chat_id_of(named, "openai", principal.id, await edge.store.secret(), path)
        try:
            meta = await (edge.own if wish.is_continuation else edge.own_or_new)(chat_id, principal)
        except IdTaken as taken:
            taken.path = path or None
            raise
        if meta is None:
            return Target(chat_id)
        state, _ = await load_folded(edge.store, chat_id, with_facts=True)
        # a client that knows the chat's id may send only its new message
        is_whole = bool(wish.history) or bool(by_header)
        relation: Relation = "same" if wish.is_continuation or not is_whole else _relation(wish, state)
        if relation == "other":
            return Target(_new_chat_id(), is_side=True)
        return Target(chat_id, meta, state, relation)
    if wish.results and (chat_id := wish.results[-1].chat_id):
        if wish.is_continuation:
            meta = await edge.own(chat_id, principal)
            state, _ = await load_folded(edge.store, chat_id, with_facts=True)
            return Target(chat_id, meta, state)
    elif wish.is_continuation:
        raise BadRequest("tool_call_id: use the ids of the calls as this server sent them", path=f"/messages/{wish.at}")
    if edge.doors.openai.match_history and wish.history:
        return await _matched(edge, principal, wish, user) or Target(_new_chat_id())
    return Target(_new_chat_id())


async def _matched(edge: Edge, principal: Principal, wish: Wish, user: str) -> Target | None:
    """Return the newest chat at rest, of this user of the front end, whose path equals the history, or else the newest
    chat whose path the request edits. Return None if there is no such chat."""
    edited: Target | None = None
    for meta in (await edge.store.list_chats(principal.id, MATCHED_MAX_CHATS)).chats:
        if meta.state != "idle" or meta.deleted:
            continue
        state, _ = await load_folded(edge.store, meta.chat_id, with_facts=True)
        is_theirs = (state.thread.metadata or {}).get(USER_KEY, "") == user
        relation = _relation(wish, state) if is_theirs and state.private.run is None else "other"
        if relation == "same":
            return Target(meta.chat_id, meta, state)
        if relation == "earlier" and edited is None:
            edited = Target(meta.chat_id, meta, state, "earlier")
    return edited


def _relation(wish: Wish, state: OwnerState) -> Relation:
    return relation_of(turns_of_request(wish.history), turns_of_path(active_path(state)), wish.content)


def _commands(wish: Wish, target: Target, params: JsonObject, request_id: str, user: str) -> list[Command]:
    """Return the commands of a request that ends with a message of the user."""
    commands: list[Command] = []
    state = target.state
    patch: JsonObject = {}
    if state is None:
        patch |= {"temporary": True} if target.is_side or wish.store is False else {}
        patch |= {"metadata": {USER_KEY: user}} if user else {}
    elif state.thread.temporary and wish.store is True:
        patch = {"temporary": None}
    if patch:
        commands.append(SetParams(client_request_id=f"{request_id}-thread", patch=patch))
    if state is None and wish.history:
        commands.append(RestoreMessages(client_request_id=f"{request_id}-history", messages=wish.history))
    if state is not None and target.relation == "earlier":
        turns = turns_of_path(active_path(state))
        index = turns[len(turns_of_request(wish.history))].at
        retry = RetryFromIndex(
            client_request_id=request_id, index=index, content=wish.content, tools=wish.tools, params=params
        )
        return [*commands, retry]
    if state is not None:
        waiting = {call.tool_call_id for call in state.runtime.ide_calls}
        commands += [each for each in _results(wish, target, checks=False) if each.tool_call_id in waiting]
    message = UserMessage(
        client_request_id=request_id,
        content=wish.content,
        params={"merge_queued": False, **params},  # a message with parameters is never merged with others
        tools=wish.tools,
    )
    return [*commands, message]


def _results(wish: Wish, target: Target, *, checks: bool = True) -> list[IdeToolResult]:
    """Return the commands that answer the calls of the caller's tools.

    Raises:
        BadRequest: a call of the caller's tools has no result.
        Conflict: a call no longer waits for a result. Both errors are raised only with `checks`.
    """
    runtime = target.state.runtime if target.state is not None else None
    waiting = {} if runtime is None else {call.tool_call_id: call.tool_name for call in runtime.ide_calls}
    given = {result.tool_call_id: result for result in wish.results}
    if checks:
        own = {tool.name for tool in wish.tools}
        missing = [key for key, name in waiting.items() if key not in given and (name in own or not own)]
        if missing:
            raise BadRequest(f"each call needs a result; there is none for {missing[0]}", path="/messages")
        if any(key not in waiting for key in given):
            raise Conflict("a call does not wait for its result; it was answered, aborted or too late. Send a message")
    return [
        IdeToolResult(
            client_request_id=f"openai-{secrets.token_hex(12)}",
            tool_call_id=result.tool_call_id,
            content=result.content,
        )
        for result in given.values()
    ]


def _open_run_of(wish: Wish, target: Target) -> str | None:
    if not wish.is_continuation:
        return None
    run = target.state.private.run if target.state is not None else None
    if run is None:
        raise Conflict("the run of these calls has ended; send a message of the user")
    return run.run_id


def _in_body(refusal: Refused, command: Command, wish: Wish) -> Refused:
    """Return the refusal with a path that points into the caller's body."""
    path = refusal.path or ""
    if isinstance(command, RestoreMessages):
        _, _, rest = path.partition("/messages/")
        number, _, below = rest.partition("/")
        at = wish.indexes[int(number)] if number.isdigit() and int(number) < len(wish.indexes) else 0
        refusal.path = f"/messages/{at}/{below}".rstrip("/")
    elif path.startswith("/content"):
        refusal.path = f"/messages/{wish.at}{path}"
    elif path.startswith(("/patch", "/params")):
        refusal.path = path.removeprefix("/patch").removeprefix("/params")
    return refusal


def _new_chat_id() -> str:
    return f"chat-{secrets.token_hex(16)}"
