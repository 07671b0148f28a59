"""The endpoints of OpenAI's Conversations: a conversation is a chat."""

import secrets
import time

from starlette.requests import Request
from starlette.responses import Response

from threadcast.api.edge import Edge, caller_of, read_json, release_body
from threadcast.api.errors import answer
from threadcast.api.operation import Answer, Operation
from threadcast.api.posting import lay_down
from threadcast.compat.responses.bodies import (
    ConversationRequest,
    read_conversation,
    read_input,
)
from threadcast.compat.responses.errors import ERRORS, READ, error_form
from threadcast.store.load import load_folded
from threadcast_protocol.wire.commands import (
    RestoreMessages,
    SetParams,
)
from threadcast_protocol.wire.errors import BadRequest, NotFound
from threadcast_protocol.wire.ids import RESERVED_CHAT_IDS, is_id
from threadcast_protocol.wire.messages import JsonObject
from threadcast_protocol.wire.principal import Principal

__all__ = ["create_conversation", "delete_conversation", "new_chat_id", "own_conversation", "read_one_conversation"]


def new_chat_id() -> str:
    """Return an unused id of a chat."""
    return f"conv_{secrets.token_hex(16)}"


async def own_conversation(edge: Edge, principal: Principal, chat_id: str) -> None:
    """Check that the chat is the caller's. Raises NotFound."""
    if not is_id(chat_id) or chat_id in RESERVED_CHAT_IDS:
        raise NotFound("no such conversation")
    try:
        await edge.own(chat_id, principal)
    except NotFound:
        raise NotFound("no such conversation") from None


@Operation(
    "POST",
    "/v1/conversations",
    "createConversation",
    "Create a chat.",
    tag="doors",
    body=ConversationRequest,
    answers={200: Answer("The `Conversation`.", dict)},
    errors=ERRORS,
    error_form=error_form,
)
async def create_conversation(request: Request) -> Response:
    """`POST /v1/conversations`."""
    edge, principal = caller_of(request)
    asked = read_conversation(await read_json(request, edge.limits.body_max_bytes))
    given = read_input(asked.items or [], "/items")
    if given.instructions or given.answers.results or given.answers.decisions:
        raise BadRequest("items: a conversation begins with messages of users and assistants", path="/items")
    release_body(request)
    chat_id = new_chat_id()
    metadata = asked.metadata or {}
    setting = SetParams(client_request_id=f"conv-{secrets.token_hex(12)}", patch={"metadata": metadata})
    await lay_down(edge, principal, chat_id, setting)
    messages = [*given.history, *([{"role": "user", "content": given.content}] if given.content else [])]
    if messages:
        restored = RestoreMessages(client_request_id=f"conv-{secrets.token_hex(12)}", messages=messages)
        await lay_down(edge, principal, chat_id, restored)
    return answer(200, _conversation(chat_id, int(time.time()), metadata))


def _conversation(chat_id: str, created_at: int, metadata: JsonObject | None) -> JsonObject:
    return {"id": chat_id, "object": "conversation", "created_at": created_at, "metadata": metadata or {}}


@Operation(
    "GET",
    "/v1/conversations/{conversation_id}",
    "readConversation",
    "Read what is known of a conversation.",
    tag="doors",
    answers={200: Answer("The `Conversation`.", dict)},
    errors=READ,
    error_form=error_form,
)
async def read_one_conversation(request: Request) -> Response:
    """`GET /v1/conversations/{id}`."""
    edge, principal = caller_of(request)
    chat_id = request.path_params["conversation_id"]
    await own_conversation(edge, principal, chat_id)
    meta = await edge.own(chat_id, principal)
    state, _ = await load_folded(edge.store, chat_id, with_facts=False)
    return answer(200, _conversation(chat_id, meta.created_at // 1000, state.thread.metadata))


@Operation(
    "DELETE",
    "/v1/conversations/{conversation_id}",
    "deleteConversation",
    "Delete a conversation, which is a chat.",
    tag="doors",
    answers={200: Answer("Gone.", dict)},
    errors=READ,
    error_form=error_form,
)
async def delete_conversation(request: Request) -> Response:
    """`DELETE /v1/conversations/{id}`."""
    edge, principal = caller_of(request)
    chat_id = request.path_params["conversation_id"]
    await own_conversation(edge, principal, chat_id)
    if not await edge.delete(chat_id, principal.id):
        raise NotFound("no such conversation")
    return answer(200, {"id": chat_id, "object": "conversation.deleted", "deleted": True})
