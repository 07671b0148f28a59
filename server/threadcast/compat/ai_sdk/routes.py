"""The endpoints of the door of the AI SDK: `/ai-sdk/chat`, for `DefaultChatTransport` of npm `ai` (PROTOCOL §14)."""

import secrets
from collections.abc import Sequence
from functools import partial

from starlette.requests import Request
from starlette.responses import Response

from threadcast.api.blobs import THREAD_MIN_BYTES
from threadcast.api.declared_tools import check_declared_tools
from threadcast.api.edge import Edge, caller_of, read_json, release_body
from threadcast.api.errors import answer
from threadcast.api.operation import LIMITED, NOT_FOUND, UNAVAILABLE, Answer, Operation
from threadcast.api.posting import lay_down
from threadcast.base.large_reads import in_large_read
from threadcast.compat.ai_sdk.answers import answers_in
from threadcast.compat.ai_sdk.bodies import ChatRequest, UIMessage, content_of, read_chat, same_text, tool_parts
from threadcast.compat.ai_sdk.chunks import UIStream
from threadcast.compat.ai_sdk.message_ids import edit_request_id, request_id_of, ui_id_of
from threadcast.compat.ai_sdk.parts import is_at_pause, path_of, turn_after, ui_messages
from threadcast.compat.ai_sdk.run_slices import ContinuedRun, RegeneratedRun
from threadcast.compat.base import AWAITS_DECISION, RunSlice
from threadcast.compat.foreign_ids import chat_id_of
from threadcast.compat.run_answer import Post, RunAnswer
from threadcast.store.load import load_folded
from threadcast_protocol.fold.state import ChatState, empty_state
from threadcast_protocol.wire.commands import Command, Regenerate, UpdateMessage, UserMessage
from threadcast_protocol.wire.errors import Conflict, NotFound, Refused
from threadcast_protocol.wire.http import Failure
from threadcast_protocol.wire.messages import JsonObject, Message
from threadcast_protocol.wire.principal import Principal

__all__ = ["ROUTES", "STREAM_HEADERS", "ai_sdk_chat", "ai_sdk_messages", "ai_sdk_stream"]

STREAM_HEADERS = {"x-vercel-ai-ui-message-stream": "v1"}
"""`UI_MESSAGE_STREAM_HEADERS` of npm `ai`."""

_STREAM = Answer("Chunks of the UI message stream v1, then `[DONE]`.", dict, "text/event-stream")


def _error(failure: Failure, status: int) -> JsonObject:
    """Return the body of an error. The AI SDK throws an Error with the whole body as its text."""
    told: JsonObject = {"error": failure.detail, "detail": failure.detail, "code": failure.code}
    return told if failure.path is None else {**told, "path": failure.path}


@Operation(
    "POST",
    "/ai-sdk/chat",
    "aiSdkChat",
    "Send a message, or the answers that a run waits for, and stream the answer as the AI SDK's UI message stream.",
    tag="doors",
    body=ChatRequest,
    answers={200: _STREAM},
    errors={
        400: "`bad_request` or `invalid_content`: nothing was stored.",
        403: "`forbidden`: the caller may not approve.",
        409: "`conflict`: the chat waits for an approval. `id_taken`: choose another chat id.",
        413: "`too_large`.",
    }
    | NOT_FOUND
    | LIMITED
    | UNAVAILABLE,
    error_form=_error,
)
async def ai_sdk_chat(request: Request) -> Response:
    """`POST /ai-sdk/chat`."""
    edge, principal = caller_of(request)
    body = await read_json(request, edge.limits.body_max_bytes)
    is_large = len(body) > THREAD_MIN_BYTES
    asked = await in_large_read(partial(read_chat, body)) if is_large else read_chat(body)
    del body
    # the tools are checked even if the request does not use them, so that a page learns of an error at once
    check_declared_tools(edge, asked.tools)
    chat_id = await _chat_id(edge, principal, asked.id)
    answered = asked.answered
    if answered is None and asked.trigger == "submit-message":
        meta = await edge.own_or_new(chat_id, principal)
    else:
        meta = await edge.own(chat_id, principal)
    state = empty_state(chat_id) if meta is None else await _state(edge, chat_id)
    release_body(request)
    turn = _Turn(edge, principal, state)
    if answered is not None:
        return turn.go_on(answered)
    if asked.trigger == "regenerate-message":
        return turn.again(asked)
    return turn.take(asked)


@Operation(
    "GET",
    "/ai-sdk/chat/{chat_id:path}/stream",
    "aiSdkStream",
    "Join the open run: its message from the start, then what follows.",
    tag="doors",
    answers={200: _STREAM, 204: Answer("No run is open, or it waits for a person.", media_type="")},
    errors={400: "`bad_request`: the id is too long."} | UNAVAILABLE,
    error_form=_error,
)
async def ai_sdk_stream(request: Request) -> Response:
    """`GET /ai-sdk/chat/{id}/stream`. An unknown chat has no open run, so a page may ask before its first message."""
    edge, principal = caller_of(request)
    chat_id = await _chat_id(edge, principal, request.path_params["chat_id"])
    try:
        await edge.own(chat_id, principal)
    except NotFound:
        return Response(status_code=204)
    state = await _state(edge, chat_id)
    if state.is_at_rest or is_at_pause(state.runtime):
        return Response(status_code=204)
    return _Turn(edge, principal, state).join()


@Operation(
    "GET",
    "/ai-sdk/chat/{chat_id:path}",
    "aiSdkMessages",
    "Read all UI messages of a chat, for a page that loads.",
    tag="doors",
    answers={200: Answer("The messages of the active path, as `UIMessage`s.", list[JsonObject])},
    errors={400: "`bad_request`: the id is too long."} | NOT_FOUND | UNAVAILABLE,
    error_form=_error,
)
async def ai_sdk_messages(request: Request) -> Response:
    """`GET /ai-sdk/chat/{id}`."""
    edge, principal = caller_of(request)
    chat_id = await _chat_id(edge, principal, request.path_params["chat_id"])
    await edge.own(chat_id, principal)
    state = await _state(edge, chat_id)
    return answer(200, await in_large_read(partial(ui_messages, state, edge.public_url)))


async def _chat_id(edge: Edge, principal: Principal, foreign_id: str) -> str:
    return chat_id_of(foreign_id, "ai_sdk", principal.id, await edge.store.secret(), "/id")


async def _state(edge: Edge, chat_id: str) -> ChatState:
    state, _ = await load_folded(edge.store, chat_id, with_facts=False)
    return state


class _Turn:
    """Chooses the commands and the stream for one request, depending on the present state of its chat."""

    def __init__(self, edge: Edge, principal: Principal, state: ChatState) -> None:
        self._edge = edge
        self._principal = principal
        self._state = state
        self._detaches = edge.doors.ai_sdk.on_disconnect == "continue"

    def take(self, asked: ChatRequest) -> Response:
        """Answer a new message of the user, an edited message, or a message that was sent before."""
        index, message = asked.asked
        path = f"/messages/{index}"
        content = content_of(message, path)
        known = self._known(message.id)
        if known is None:
            self._refuse_at_pause()
            request_id = request_id_of(message.id, f"{path}/id")
            params = {"model": asked.model} if asked.model else {}
            command = UserMessage(client_request_id=request_id, content=content, params=params, tools=asked.tools)
            return self._begin(command, RunSlice(request_id))
        if not same_text(content, known.content):
            self._refuse_at_pause()
            edit = UpdateMessage(
                client_request_id=edit_request_id(message.id, f"{path}/id"),
                message_id=known.message_id,
                content=content,
                mode="branch",
                regenerate=True,
                tools=asked.tools or None,
            )
            return self._begin(edit, RunSlice(edit.client_request_id))
        if asked.message_id == message.id and not self._is_open_for(known):
            return self._regenerate(known)  # the page repeats a question with the same text
        return self.join(known.message_id)

    def again(self, asked: ChatRequest) -> Response:
        """Regenerate the answer to the last message of the user."""
        index, message = asked.asked
        known = self._known(message.id)
        if known is None:
            raise NotFound(f"the chat has no message {message.id!r}", path=f"/messages/{index}/id")
        return self._regenerate(known)

    def go_on(self, answered: UIMessage) -> Response:
        """Continue a run with the approvals and results in a message that the page sends back."""
        path = path_of(self._state)
        users = [message.message_id for message in path if message.role == "user"]
        user_id = next((user for user in users if _answer_id(path, user) == answered.id), None)
        commands = answers_in(answered, self._state) if user_id == (users[-1] if users else None) else []
        steps = sum(1 for part in answered.parts if part.type == "step-start")
        request_ids = [command.client_request_id for command in commands]
        stream = UIStream(
            self._state.chat_id,
            self._edge.public_url,
            known=tool_parts(answered),
            steps=steps,
            awaited=request_ids,
            user_id=user_id or "none",
        )
        return self._follow(stream, ContinuedRun(self._state.runtime.run_id, request_ids), commands)

    def join(self, user_id: str | None = None) -> Response:
        """Send the whole answer to a message of the user, by default the last message."""
        stream = UIStream(self._state.chat_id, self._edge.public_url, user_id=user_id)
        return self._follow(stream, ContinuedRun(self._state.runtime.run_id), [])

    def _regenerate(self, known: Message) -> Response:
        self._refuse_at_pause()
        command = Regenerate(client_request_id=f"ai-sdk-{secrets.token_hex(12)}", message_id=known.message_id)
        return self._begin(command, RegeneratedRun(command.client_request_id))

    def _known(self, ui_id: str) -> Message | None:
        """Return the message of the active path that the page knows by this id."""
        nodes = (self._state.nodes[key] for key in self._state.path)
        return next((node for node in nodes if node.role == "user" and ui_id_of(node) == ui_id), None)

    def _is_open_for(self, known: Message) -> bool:
        last = next((key for key in reversed(self._state.path) if self._state.nodes[key].role == "user"), None)
        return not self._state.is_at_rest and last == known.message_id

    def _refuse_at_pause(self) -> None:
        if self._state.runtime.paused:
            raise Conflict(AWAITS_DECISION)

    def _begin(self, command: Command, run: RunSlice) -> Response:
        """Post a command that begins a run."""
        return RunAnswer(
            self._edge,
            self._principal,
            self._state.chat_id,
            UIStream(self._state.chat_id, self._edge.public_url),
            run,
            post=self._poster([command]),
            request_id=command.client_request_id,
            detaches=self._detaches,
            more=STREAM_HEADERS,
        )

    def _follow(self, stream: UIStream, run: RunSlice, commands: Sequence[Command]) -> Response:
        """Join the chat and post commands that continue its open run. A page that only joins never stops the run."""
        return RunAnswer(
            self._edge,
            self._principal,
            self._state.chat_id,
            stream,
            run,
            post=self._poster(commands) if commands else None,
            joins=True,
            detaches=self._detaches or not commands,
            more=STREAM_HEADERS,
        )

    def _poster(self, commands: Sequence[Command]) -> Post:
        async def post(authorization: str | None) -> None:
            for command in commands:
                try:
                    await lay_down(self._edge, self._principal, self._state.chat_id, command, authorization)
                except Refused as refusal:
                    refusal.path = None  # the path points into the command, not into the body
                    raise

        return post


def _answer_id(path: Sequence[Message], user_id: str) -> str | None:
    """Return the id of the UI message that answers a message of the user."""
    turn = turn_after(path, user_id)
    return next((message.message_id for message in turn if message.role in ("assistant", "error")), None)


ROUTES = [ai_sdk_chat, ai_sdk_stream, ai_sdk_messages]
