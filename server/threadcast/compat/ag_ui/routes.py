"""The endpoints of the door of AG-UI: `POST /ag-ui` and `POST /ag-ui/{mode}`, for `HttpAgent` of npm `@ag-ui/client`
(PROTOCOL §14)."""

from functools import partial

from starlette.requests import Request
from starlette.responses import Response

from threadcast.api.blobs import THREAD_MIN_BYTES
from threadcast.api.edge import Edge, caller_of, read_json, release_body
from threadcast.api.operation import LIMITED, UNAVAILABLE, Answer, Operation
from threadcast.api.posting import lay_down
from threadcast.base.large_reads import in_large_read
from threadcast.compat.ag_ui.bodies import RunInput, read_run
from threadcast.compat.ag_ui.run_slice import TurnSlice
from threadcast.compat.ag_ui.run_stream import RunStream
from threadcast.compat.ag_ui.wishes import Wish, wish_of
from threadcast.compat.foreign_ids import chat_id_of
from threadcast.compat.run_answer import RunAnswer
from threadcast.store.load import load_folded
from threadcast_protocol.fold.state import ChatState
from threadcast_protocol.wire.commands import Command, RestoreMessages, UserMessage
from threadcast_protocol.wire.errors import IdTaken, NotFound, Refused
from threadcast_protocol.wire.http import Failure
from threadcast_protocol.wire.messages import JsonObject

__all__ = ["ROUTES", "ag_ui_run", "ag_ui_run_in_mode"]

_AGENTS = "agents/"
"""The prefix of the operator's agents among the models."""


def _error(failure: Failure, status: int) -> JsonObject:
    """Return the body of an error: the protocol's own event, with the path of the wrong value."""
    told: JsonObject = {"type": "RUN_ERROR", "message": failure.detail, "code": failure.code}
    return told if failure.path is None else {**told, "path": failure.path}


def _operation(path: str, operation_id: str, summary: str) -> Operation:
    return Operation(
        "POST",
        path,
        operation_id,
        summary,
        tag="doors",
        body=RunInput,
        answers={200: Answer("Events of AG-UI 1.0, up to `RUN_FINISHED` or `RUN_ERROR`.", dict, "text/event-stream")},
        errors={
            400: "`bad_request` or `invalid_content`: nothing was stored.",
            403: "`forbidden`: the caller may not approve, or the operator allows no tools of clients.",
            404: "`not_found`: the chat is deleted, or no profile or agent has the name in the path.",
            409: "`conflict`: the chat waits for an approval. `id_taken`: choose another thread id.",
            413: "`too_large`.",
        }
        | LIMITED
        | UNAVAILABLE,
        error_form=_error,
    )


@_operation("/ag-ui", "agUiRun", "Send messages, results and answers as AG-UI's `RunAgentInput`, and stream the run.")
async def ag_ui_run(request: Request) -> Response:
    """`POST /ag-ui`."""
    return await _answer(request, "")


@_operation("/ag-ui/{mode}", "agUiRunInMode", "The same, answered by a profile or an agent of the operator.")
async def ag_ui_run_in_mode(request: Request) -> Response:
    """`POST /ag-ui/{mode}`."""
    return await _answer(request, request.path_params["mode"])


async def _answer(request: Request, mode: str) -> Response:
    edge, principal = caller_of(request)
    body = await read_json(request, edge.limits.body_max_bytes)
    is_large = len(body) > THREAD_MIN_BYTES
    asked = await in_large_read(partial(read_run, body)) if is_large else read_run(body)
    del body
    params, new_mode = await _params_of(edge, mode)
    chat_id = chat_id_of(asked.thread_id, "ag_ui", principal.id, await edge.store.secret(), "/threadId")
    state: ChatState | None = None
    if await edge.is_hidden(chat_id, principal):
        if wish_of(asked, None, params).begins:
            raise IdTaken
        chat_id = f"{chat_id}."  # this chat cannot exist, so the caller learns nothing about the other chat
    elif await edge.own_or_new(chat_id, principal) is not None:
        state, _ = await load_folded(edge.store, chat_id, with_facts=False)
    wish = wish_of(asked, state, params)
    release_body(request)
    continues = [command.client_request_id for command in wish.continues]
    goes_on = bool(continues) or not wish.request_id or not wish.begins
    open_run = None if state is None or state.is_at_rest or not goes_on else state.runtime.run_id
    run = TurnSlice(wish.request_id, open_run, continues)
    stream = RunStream(
        chat_id,
        asked,
        run,
        request_id=wish.request_id,
        awaited=continues,
        shows_all=goes_on,
        given=wish.given,
        public_url=edge.public_url,
    )
    commands = [*wish.continues, *wish.begins]

    async def post(authorization: str | None) -> None:
        for command in commands:
            is_first = state is None and command is commands[0]
            try:
                mode_of_new = new_mode if is_first else ""
                await lay_down(edge, principal, chat_id, command, authorization, new_mode=mode_of_new)
            except Refused as refusal:
                refusal.path = _path_in_body(refusal.path or "", command, wish)
                raise

    return RunAnswer(
        edge,
        principal,
        chat_id,
        stream,
        run,
        post=post if commands else None,
        request_id=wish.request_id,
        joins=True,
        detaches=edge.doors.ag_ui.on_disconnect == "continue" or not commands,
    )


async def _params_of(edge: Edge, name: str) -> tuple[JsonObject, str]:
    """Return the parameters of a run of this profile or agent, and the profile of a new chat. Raises NotFound."""
    if not name:
        return {}, ""
    profile = edge.profiles.get(name)
    if profile is not None:
        return {"mode": profile.name}, profile.name
    await edge.providers.listed()
    if _AGENTS + name in edge.providers.model_infos():
        return {"model": _AGENTS + name}, ""
    raise NotFound(f"no profile and no agent is called {name[:100]!r}")


def _path_in_body(path: str, command: Command, wish: Wish) -> str | None:
    """Return the path in the client's body for a path in a command; None if the body has no such path."""
    if isinstance(command, RestoreMessages):
        return "/messages"
    if isinstance(command, UserMessage):
        if path.startswith("/content"):
            return f"/messages/{wish.message_at}{path}"
        if path.startswith("/tools"):
            return path.replace("/input_schema", "/parameters")
        if path.startswith("/context"):
            return "/state"
    return None


ROUTES = [ag_ui_run, ag_ui_run_in_mode]
