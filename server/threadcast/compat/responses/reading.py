"""Endpoints that read, follow, cancel and delete a response."""

import secrets

from starlette.requests import Request
from starlette.responses import Response

from threadcast.api.edge import Edge, caller_of
from threadcast.api.errors import answer
from threadcast.api.operation import LIMITED, Answer, Operation, Parameter
from threadcast.api.posting import lay_down
from threadcast.compat.responses.errors import READ, error_form
from threadcast.compat.responses.replay import Found, ResponseAnswer, ResponseSlice, find_response
from threadcast.compat.responses.response_ids import ResponseId, read_response_id
from threadcast_protocol.wire.commands import (
    Abort,
    RemoveMessage,
)
from threadcast_protocol.wire.errors import BadRequest, Conflict
from threadcast_protocol.wire.principal import Principal

__all__ = ["cancel_response", "delete_response", "list_input_items", "read_one"]

ITEMS_DEFAULT = 20
ITEMS_MAX = 100
"""The default and the largest page of input items, as in OpenAI's API reference."""


@Operation(
    "GET",
    "/v1/responses/{response_id}",
    "readResponse",
    "Read a response, or follow its events.",
    tag="doors",
    parameters=[
        Parameter("stream", bool, "Whether to send events."),
        Parameter("starting_after", int, "With `stream`: the number of the last event that the client has."),
    ],
    answers={200: Answer("The `Response`, or its events.", dict, "text/event-stream")},
    errors={400: "`bad_request`: a wrong parameter."} | READ,
    error_form=error_form,
)
async def read_one(request: Request) -> Response:
    """`GET /v1/responses/{id}`."""
    edge, principal = caller_of(request)
    own_id = read_response_id(request.path_params["response_id"])
    wish, after = request.query_params.get("stream", "false"), request.query_params.get("starting_after", "-1")
    if wish not in ("true", "false"):
        raise BadRequest("stream must be true or false", path="/stream")
    if not (after == "-1" or (after.isascii() and after.isdigit() and len(after) <= 15)):
        raise BadRequest("starting_after must be the number of an event", path="/starting_after")
    found = await find_response(edge, principal, own_id)
    if wish == "false":
        return answer(200, found.stream.body())
    return _following(edge, principal, found, own_id, int(after))


def _following(edge: Edge, principal: Principal, found: Found, own_id: ResponseId, after: int) -> ResponseAnswer:
    """Return an answer with the events of a response after the number `after`: first the events in the log, then new
    events."""
    stream = found.stream_after(own_id, after)
    followed = ResponseAnswer(edge, principal, own_id.chat_id, stream, ResponseSlice(own_id), detaches=True)
    followed.replays, followed.trimmed, followed.after = True, found.trimmed, after
    return followed


@Operation(
    "POST",
    "/v1/responses/{response_id}/cancel",
    "cancelResponse",
    "Stop the run of a response; the text so far is kept.",
    tag="doors",
    answers={200: Answer("The `Response`.", dict)},
    errors=READ | LIMITED,
    error_form=error_form,
)
async def cancel_response(request: Request) -> Response:
    """`POST /v1/responses/{id}/cancel`. A response that has ended is not changed."""
    edge, principal = caller_of(request)
    own_id = read_response_id(request.path_params["response_id"])
    found = await find_response(edge, principal, own_id)
    if found.run.is_over or found.run.run_id is None:
        return answer(200, found.stream.body())
    run_id = found.run.run_id
    abort = Abort(client_request_id=f"cancel-{secrets.token_hex(12)}", run_id=run_id)
    if found.stream.is_done:  # the run waits for an answer that will not come
        await lay_down(edge, principal, own_id.chat_id, abort)
        return answer(200, found.stream.body())
    followed = _following(edge, principal, found, own_id, -1)

    async def post(_: str | None) -> None:
        await lay_down(edge, principal, own_id.chat_id, abort)

    followed._post, followed._wants_json = post, True
    return followed


@Operation(
    "DELETE",
    "/v1/responses/{response_id}",
    "deleteResponse",
    "Delete the message of a response and its answer.",
    tag="doors",
    answers={200: Answer("Gone.", dict)},
    errors={409: "`conflict`: it is not finished, or later messages build on it."} | READ | LIMITED,
    error_form=error_form,
)
async def delete_response(request: Request) -> Response:
    """`DELETE /v1/responses/{id}`. A response that later messages build on is not deleted, because these messages would
    be deleted too."""
    edge, principal = caller_of(request)
    own_id = read_response_id(request.path_params["response_id"])
    found = await find_response(edge, principal, own_id)
    first = next((each for each in found.state.nodes.values() if each.client_request_id == own_id.request_id), None)
    if first is None or not found.run.is_over:
        raise Conflict("only a finished response that a message began can be deleted")
    if any(each.parent_id == found.stream.last_message_id for each in found.state.nodes.values()):
        raise Conflict("later messages build on this response; delete them or the conversation")
    command = RemoveMessage(client_request_id=f"delete-{secrets.token_hex(12)}", message_id=first.message_id)
    await lay_down(edge, principal, own_id.chat_id, command)
    return answer(200, {"id": str(own_id), "object": "response", "deleted": True})


@Operation(
    "GET",
    "/v1/responses/{response_id}/input_items",
    "listInputItems",
    "List the input of a response.",
    tag="doors",
    parameters=[
        Parameter("limit", int, "The size of a page.", default=ITEMS_DEFAULT),
        Parameter("after", str, "The id of the last item of the page before."),
        Parameter("order", str, "asc or desc.", default="desc"),
    ],
    answers={200: Answer("One page.", dict)},
    errors={400: "`bad_request`: a wrong parameter."} | READ,
    error_form=error_form,
)
async def list_input_items(request: Request) -> Response:
    """`GET /v1/responses/{id}/input_items?limit&after&order`."""
    edge, principal = caller_of(request)
    own_id = read_response_id(request.path_params["response_id"])
    limit, order = request.query_params.get("limit", str(ITEMS_DEFAULT)), request.query_params.get("order", "desc")
    if not (limit.isascii() and limit.isdigit() and len(limit) < 4 and 1 <= int(limit) <= ITEMS_MAX):
        raise BadRequest(f"limit must be 1 to {ITEMS_MAX}", path="/limit")
    if order not in ("asc", "desc"):
        raise BadRequest("order must be asc or desc", path="/order")
    found = await find_response(edge, principal, own_id)
    items = found.stream.inputs if order == "asc" else found.stream.inputs[::-1]
    if (after := request.query_params.get("after")) is not None:
        at = next((number for number, item in enumerate(items) if item["id"] == after), None)
        if at is None:
            raise BadRequest("after must be the id of an item", path="/after")
        items = items[at + 1 :]
    page = items[: int(limit)]
    ids = [item["id"] for item in page] or [""]
    told = {"object": "list", "data": page, "first_id": ids[0], "last_id": ids[-1], "has_more": len(items) > len(page)}
    return answer(200, told)
