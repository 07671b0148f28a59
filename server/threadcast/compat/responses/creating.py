"""`POST /v1/responses`: posts a message, or the answers that a run waits for, and streams the run."""

import time
from functools import partial

from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from threadcast.api.blobs import THREAD_MIN_BYTES
from threadcast.api.edge import Edge, caller_of, read_json, release_body
from threadcast.api.errors import answer
from threadcast.api.operation import Answer, Operation
from threadcast.api.posting import lay_down
from threadcast.base.large_reads import in_large_read
from threadcast.compat.responses.bodies import (
    Answers,
    Given,
    ResponseRequest,
    declared_tools,
    read_input,
    read_response,
)
from threadcast.compat.responses.conversations import new_chat_id, own_conversation
from threadcast.compat.responses.errors import ERRORS, error_form
from threadcast.compat.responses.replay import ResponseAnswer, ResponseSlice, find_response
from threadcast.compat.responses.response_ids import ResponseId, new_response_id, read_response_id
from threadcast.compat.responses.response_stream import ECHO, ResponseStream
from threadcast.store.load import load_folded
from threadcast_protocol.fold.state import ChatState
from threadcast_protocol.wire.commands import (
    BranchFromChat,
    Command,
    IdeToolResult,
    RestoreMessages,
    SetParams,
    ToolDecisions,
    UserMessage,
)
from threadcast_protocol.wire.errors import BadRequest, Conflict, NotFound, Refused
from threadcast_protocol.wire.messages import JsonObject
from threadcast_protocol.wire.principal import Principal

__all__ = ["create_response"]


@Operation(
    "POST",
    "/v1/responses",
    "createResponse",
    "Send a message, or the answers that a run waits for, in the format of OpenAI's Responses.",
    tag="doors",
    body=ResponseRequest,
    answers={200: Answer("Events of the response, with `stream`; else one `Response`.", dict, "text/event-stream")},
    errors={409: "`conflict`: the chat waits for an approval or a result."} | ERRORS,
    error_form=error_form,
)
async def create_response(request: Request) -> Response:
    """`POST /v1/responses`."""
    edge, principal = caller_of(request)
    body = await read_json(request, edge.limits.body_max_bytes)
    is_large = len(body) > THREAD_MIN_BYTES
    asked = await in_large_read(partial(read_response, body)) if is_large else read_response(body)
    given = read_input(asked.input)
    release_body(request)
    target = await _target_of(edge, principal, asked, given.answers)
    if given.answers.results or given.answers.decisions:
        return _continued(edge, principal, asked, given, target)
    return await _asked(edge, principal, asked, given, target)


class _Target:
    """The chat of a request. `state` is the chat's state, None for a new chat. `branch_at` is the message of another
    chat after which the new chat begins."""

    def __init__(self, chat_id: str, state: ChatState | None = None, branch_at: tuple[str, str] | None = None) -> None:
        self.chat_id = chat_id
        self.state = state
        self.branch_at = branch_at


async def _target_of(edge: Edge, principal: Principal, asked: ResponseRequest, answers: Answers) -> _Target:
    if (name := asked.conversation_id) is not None:
        await own_conversation(edge, principal, name)
        state, _ = await load_folded(edge.store, name, with_facts=False)
        return _Target(name, state)
    if asked.previous_response_id is None and answers.chat_id:  # this client stores the conversation itself
        await own_conversation(edge, principal, answers.chat_id)
        state, _ = await load_folded(edge.store, answers.chat_id, with_facts=False)
        return _Target(answers.chat_id, state)
    if asked.previous_response_id is None:
        return _Target(new_chat_id())
    own_id = read_response_id(asked.previous_response_id)
    found = await find_response(edge, principal, own_id)
    if not found.stream.is_done:
        raise Conflict("the previous response is not finished; wait for its end or cancel it")
    state, last = found.state, found.stream.last_message_id
    is_leaf = not state.path or state.path[-1] == last
    if is_leaf and (state.is_at_rest or _is_waiting(state)):
        return _Target(own_id.chat_id, state)
    if last not in state.nodes:
        raise NotFound("no such response")
    return _Target(new_chat_id(), branch_at=(own_id.chat_id, last))


def _is_waiting(state: ChatState) -> bool:
    return state.runtime.state in ("paused", "waiting_ide")


def _continued(edge: Edge, principal: Principal, asked: ResponseRequest, given: Given, target: _Target) -> Response:
    """Post the answers that a run waits for, and return the continuation."""
    state = target.state
    if given.content:
        raise BadRequest("send answers of calls and new messages in two requests", path="/input")
    if state is None or state.runtime.run_id is None:
        what = "name the response or the conversation whose run waits for this answer"
        raise BadRequest(what, path="/previous_response_id")
    calls = {call.tool_call_id for call in state.runtime.ide_calls}
    questions = {reason.tool_call_id for reason in state.runtime.pause_reasons if reason.type != "question"}
    results, decisions, chat_id = given.answers
    if chat_id not in ("", target.chat_id):
        raise BadRequest("input: the results are those of calls of another conversation", path="/input")
    if {call_id for call_id, _ in results} != calls or len(results) != len(calls):
        raise BadRequest("input: send one function_call_output for each function call that waits", path="/input")
    if {each.tool_call_id for each in decisions} != questions or len(decisions) != len(questions):
        raise BadRequest("input: send one mcp_approval_response for each open request", path="/input")
    is_stored = asked.store is not False
    own_id = new_response_id(target.chat_id, int(time.time()), continues=True, is_stored=is_stored)
    commands = _storing(asked, own_id, state)
    commands += [
        IdeToolResult(client_request_id=f"{own_id.request_id}-{number}", tool_call_id=call_id, content=text)
        for number, (call_id, text) in enumerate(results)
    ]
    if decisions:
        hashes = {reason.tool_call_id: reason.input_hash or None for reason in state.runtime.pause_reasons}
        bound = [replace(each, input_hash=hashes[each.tool_call_id or ""]) for each in decisions]
        commands.append(ToolDecisions(client_request_id=own_id.request_id, decisions=bound))
    else:
        commands[-1] = replace(commands[-1], client_request_id=own_id.request_id)
    stream = ResponseStream(own_id, {}, client_calls=calls)
    run = ResponseSliceOfOpenRun(own_id, state.runtime.run_id)
    return _answer(edge, principal, asked, stream, run, commands)


class ResponseSliceOfOpenRun(ResponseSlice):
    """The slice of a response that continues the open run `run_id`; the slice begins after the command's
    acknowledgement."""

    continues = True

    def __init__(self, own_id: ResponseId, run_id: str) -> None:
        super().__init__(own_id)
        self._open_run_id = run_id


async def _asked(edge: Edge, principal: Principal, asked: ResponseRequest, given: Given, target: _Target) -> Response:
    """Post the message of a request, and return its run."""
    state = target.state
    if state is not None and _is_waiting(state):
        raise Conflict("the chat waits for the answers of the last response; decide and answer first")
    if not given.content:
        raise BadRequest("input: there is no message of the user", path="/input")
    is_new = state is None and target.branch_at is None
    if given.history and not is_new:
        raise BadRequest("input: a conversation that exists takes only new messages of the user", path="/input")
    own_id = new_response_id(target.chat_id, int(time.time()), is_stored=asked.store is not False)
    echo = _echo_of(asked)
    params: JsonObject = {"merge_queued": False}
    texts = [each for each in (asked.instructions, given.instructions) if each]
    if texts:
        params["custom_instructions"] = "\n\n".join(texts)
    new_mode = ""
    if asked.model:
        if edge.profiles.get(asked.model) is not None and "/" not in asked.model:
            params["mode"] = asked.model
        else:
            params["model"] = asked.model
    for key in ("temperature", "top_p", "parallel_tool_calls"):
        if (value := getattr(asked, key)) is not None:
            params[key] = value
    if asked.max_output_tokens is not None:
        params["max_tokens"] = asked.max_output_tokens
    if asked.reasoning is not None and asked.reasoning.effort is not None:
        params["reasoning_effort"] = asked.reasoning.effort
    context = {**((state.thread.context if state is not None else None) or {}), ECHO: echo}
    commands = _storing(asked, own_id, state)
    if target.branch_at is not None:
        source, up_to = target.branch_at
        first_id = f"{own_id.request_id}-branch"
        commands.append(BranchFromChat(client_request_id=first_id, source_chat_id=source, up_to_message_id=up_to))
    elif given.history:
        commands.append(RestoreMessages(client_request_id=f"{own_id.request_id}-before", messages=given.history))
    content: object = given.content
    if len(given.content) == 1 and given.content[0]["type"] == "text":
        content = given.content[0]["text"]
    commands.append(
        UserMessage(
            client_request_id=own_id.request_id,
            content=content,
            params=params,
            context=context,
            tools=declared_tools(asked.tools),
        )
    )
    stream, run = ResponseStream(own_id, echo), ResponseSlice(own_id)
    return _answer(edge, principal, asked, stream, run, commands, new_mode=new_mode)


def _storing(asked: ResponseRequest, own_id: ResponseId, state: ChatState | None) -> list[Command]:
    """Return the command that makes a new chat temporary, or that keeps a temporary chat."""
    is_stored = asked.store is not False
    if is_stored if state is None else not (is_stored and state.thread.temporary):
        return []
    patch: JsonObject = {"temporary": None if is_stored else True}
    return [SetParams(client_request_id=f"{own_id.request_id}-store", patch=patch)]


def _echo_of(asked: ResponseRequest) -> JsonObject:
    """Return the fields of the request that every response object repeats."""
    echo: JsonObject = {
        "model": asked.model or "",
        "previous_response_id": asked.previous_response_id,
        "instructions": asked.instructions,
        "metadata": asked.metadata,
        "background": asked.background,
        "temperature": asked.temperature,
        "top_p": asked.top_p,
        "max_output_tokens": asked.max_output_tokens,
        "parallel_tool_calls": asked.parallel_tool_calls,
    }
    return {key: value for key, value in echo.items() if value is not None}


def _answer(
    edge: Edge,
    principal: Principal,
    asked: ResponseRequest,
    stream: ResponseStream,
    run: ResponseSlice,
    commands: list[Command],
    *,
    new_mode: str = "",
) -> Response:
    chat_id = stream.chat_id

    async def post(authorization: str | None) -> None:
        try:
            for command in commands:
                await lay_down(edge, principal, chat_id, command, authorization, new_mode=new_mode)
        except Refused as refusal:
            path = refusal.path or ""
            if path.startswith("/content"):
                refusal.path = "/input"
            elif path.startswith("/params"):
                refusal.path = path.removeprefix("/params")
            raise

    if asked.background and not asked.stream:
        return _Begun(edge, principal, chat_id, stream, run, post=post, detaches=True, wants_json=True)
    return ResponseAnswer(
        edge,
        principal,
        chat_id,
        stream,
        run,
        post=post,
        request_id=stream.own_id.request_id,
        wants_json=not asked.stream,
        detaches=bool(asked.background) or edge.doors.responses.on_disconnect == "continue",
        more={"X-Threadcast-Chat-Id": chat_id},
    )


class _Begun(ResponseAnswer):
    """The answer to a request for a background response, sent as soon as its message is stored."""

    async def _tell_once(self, scope, receive, send, state, watch) -> None:  # type: ignore[no-untyped-def]  # as its base
        stream = self._projection
        assert isinstance(stream, ResponseStream)
        stream.begin()
        stream.status = "queued"
        await answer(200, stream.body(), self._more)(scope, receive, send)
