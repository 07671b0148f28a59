"""The body of `POST /v1/chat/completions`, read into a `Wish`. All functions are pure."""

from collections.abc import Sequence
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from threadcast.chat.params import SAMPLERS
from threadcast.compat.foreign_ids import read_call_id
from threadcast.compat.oneshot_bodies import OneShotRequest
from threadcast_protocol.wire.bodies import decode_body
from threadcast_protocol.wire.commands import DeclaredTool
from threadcast_protocol.wire.decoders import decoder
from threadcast_protocol.wire.errors import BadRequest
from threadcast_protocol.wire.ids import Name
from threadcast_protocol.wire.messages import JsonObject
from threadcast_protocol.wire.thread import read_patch

__all__ = [
    "USER_MAX_CHARACTERS",
    "CompletionsMessage",
    "CompletionsMetadata",
    "CompletionsRequest",
    "Result",
    "Wish",
    "read_completions",
]

MESSAGES_MAX_COUNT = 10_000
"""The maximum number of messages in a request: as many as one command restores."""

USER_MAX_CHARACTERS = 512
"""The longest name of a front end's user; ids in use are UUIDs, addresses or hashes. A longer name is refused."""


class CompletionsMessage(msgspec.Struct, frozen=True):
    """A message of the conversation. Texts of the roles system and developer are instructions of this request."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[JsonObject] | None = None
    tool_calls: list[JsonObject] | None = None
    tool_call_id: str | None = None


class StreamOptions(msgspec.Struct, frozen=True):
    """Options of a stream. With `include_usage`, the last chunk has the numbers of tokens. `include_obfuscation` has no
    effect."""

    include_usage: bool = False
    include_obfuscation: bool = False


class CompletionsMetadata(msgspec.Struct, frozen=True):
    """Metadata of a request. `chat_id` names the chat; other keys are ignored."""

    chat_id: str | None = None


class CompletionsRequest(OneShotRequest, frozen=True, kw_only=True):
    """The body of `POST /v1/chat/completions`, as OpenAI defines it. `metadata.chat_id` names the chat, which may be
    new."""

    messages: Annotated[list[CompletionsMessage], Meta(max_length=MESSAGES_MAX_COUNT)]
    model: Name = ""
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    metadata: CompletionsMetadata | None = None
    tools: list[JsonObject] | None = None
    tool_choice: object = None
    n: object = None
    store: object = None
    user: Annotated[str, Meta(max_length=USER_MAX_CHARACTERS)] | None = None
    safety_identifier: Annotated[str, Meta(max_length=USER_MAX_CHARACTERS)] | None = None
    response_format: object = None
    logprobs: object = None
    modalities: object = None
    top_logprobs: object = None
    logit_bias: object = None
    audio: object = None
    prediction: object = None
    functions: object = None
    function_call: object = None
    web_search_options: object = None
    verbosity: object = None
    max_completion_tokens: object = None
    max_tokens: object = None
    temperature: object = None
    top_p: object = None
    frequency_penalty: object = None
    presence_penalty: object = None
    reasoning_effort: object = None
    parallel_tool_calls: object = None
    seed: object = None
    stop: object = None
    top_k: object = None
    min_p: object = None
    repetition_penalty: object = None


class Result(msgspec.Struct, frozen=True):
    """The result of a call of the caller's own tools. `chat_id` is '' if the call's id names no chat; `at` is the index
    of its message in the body."""

    tool_call_id: str
    chat_id: str
    content: str
    at: int


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """A request, read. `content` is the content of the last message, a message of the user at the index `at`; None if
    the request ends with `results`. `history` are the earlier messages in the form of `restore_messages`, and `indexes`
    are their indexes in the body. `named` is the id of the chat as the caller wrote it. `store` tells whether lists
    show a new chat. `user` is the front end's user, '' if the body names no user."""

    named: str | None
    content: object
    at: int
    history: list[JsonObject]
    indexes: list[int]
    results: list[Result]
    tools: list[DeclaredTool]
    params: JsonObject
    model: str
    mode: object
    on_disconnect: str | None
    is_stream: bool
    with_usage: bool
    store: bool | None
    user: str

    @property
    def is_continuation(self) -> bool:
        """Whether the request ends with results of tools, so that the run that called the tools continues."""
        return self.content is None


_PARAMS = (
    "max_tokens",
    "temperature",
    "top_p",
    "frequency_penalty",
    "presence_penalty",
    "reasoning_effort",
    "parallel_tool_calls",
    *SAMPLERS,
)
"""Fields that become parameters of the run, with the bounds of PROTOCOL §16."""

_ACCEPTED: dict[str, tuple[object, ...]] = {
    "n": (1,),
    "store": (True, False),
    "response_format": ({"type": "text"},),
    "logprobs": (False,),
    "modalities": (["text"],),
    "top_logprobs": (),
    "logit_bias": ({},),
    "audio": (),
    "prediction": (),
    "functions": ([],),
    "function_call": (),
    "web_search_options": (),
    "verbosity": ("medium",),
    "tool_choice": ("auto", "none"),
}
"""Fields that are not passed to a provider, with the values that are accepted because they change nothing. Other values
are refused, so that no caller relies on an effect that does not happen."""


def read_completions(body: bytes) -> Wish:
    """Read the body of `POST /v1/chat/completions`.

    Raises:
        BadRequest: the body is not a request of OpenAI's API, or asks for something that this server does not do.
    """
    asked = decode_body(decoder(CompletionsRequest), body)
    for key, accepted in _ACCEPTED.items():
        value = getattr(asked, key)
        if value is not None and not any(type(value) is type(each) and value == each for each in accepted):
            raise BadRequest(f"{key}: this server does not support the value; leave {key} out", path=f"/{key}")
    turns = [(at, message) for at, message in enumerate(asked.messages) if message.role not in ("system", "developer")]
    if not turns or turns[-1][1].role == "assistant":
        raise BadRequest("messages must end with a user message, or with results of tools", path="/messages")
    last_at, last = turns[-1]
    is_user = last.role == "user"
    earlier = turns[:-1] if is_user else turns
    if is_user and last.content is None:
        raise BadRequest("a message of the user has content", path=f"/messages/{last_at}/content")
    return Wish(
        named=(asked.metadata.chat_id if asked.metadata else None) or None,
        content=last.content if is_user else None,
        at=last_at,
        history=[_restorable(message) for _, message in earlier],
        indexes=[at for at, _ in earlier],
        results=_results(earlier),
        tools=[] if asked.tool_choice == "none" else _tools(asked.tools or []),
        params=_params(asked),
        model=asked.model,
        mode=asked.mode,
        on_disconnect=asked.on_disconnect,
        is_stream=bool(asked.stream),  # not by the header: OpenAI's clients always send `Accept: application/json`
        with_usage=asked.stream_options is not None and asked.stream_options.include_usage,
        store=asked.store if isinstance(asked.store, bool) else None,
        user=asked.user or asked.safety_identifier or "",
    )


def _params(asked: CompletionsRequest) -> JsonObject:
    params = {key: value for key in _PARAMS if (value := getattr(asked, key)) is not None}
    if isinstance(asked.stop, str):
        params["stop"] = [asked.stop]
    if asked.max_completion_tokens is not None:
        _check("max_tokens", asked.max_tokens)
        params["max_tokens"] = asked.max_completion_tokens
    instructions = [
        _text(message.content, f"/messages/{at}/content")
        for at, message in enumerate(asked.messages)
        if message.role in ("system", "developer")
    ]
    if text := "\n\n".join(filter(None, instructions)):
        _check("custom_instructions", text, "/messages")
        params["custom_instructions"] = text
    return params


def _check(key: str, value: object, path: str = "") -> None:
    """Check a parameter here, so that the error's path points into the body. Raises BadRequest."""
    try:
        read_patch({key: value})
    except BadRequest as wrong:
        raise BadRequest(wrong.message, path=path or f"/{key}") from None


def _text(content: object, path: str) -> str:
    """Return a text, or the joined texts of a list of parts. Raises BadRequest for anything else."""
    if content is None or isinstance(content, str):
        return content or ""
    parts = content if isinstance(content, list) else [content]
    texts = [part.get("text", part.get("refusal")) if isinstance(part, dict) else None for part in parts]
    if not all(isinstance(text, str) for text in texts):
        raise BadRequest("content: must be a text, or a list of parts with texts", path=path)
    return "".join(text for text in texts if isinstance(text, str))


def _restorable(message: CompletionsMessage) -> JsonObject:
    """Return a message of the history in the form of `restore_messages`."""
    content = message.content
    if isinstance(content, list) and all(isinstance(part, dict) and part.get("type") == "text" for part in content):
        content = _text(content, "/messages")
    restored: JsonObject = {"role": message.role, "content": content}
    if message.tool_calls and message.role == "assistant":
        restored["tool_calls"] = [
            {**call, "id": read_call_id(call["id"])[0]} if isinstance(call.get("id"), str) else call
            for call in message.tool_calls
        ]
    if message.tool_call_id is not None and message.role == "tool":
        restored["tool_call_id"] = read_call_id(message.tool_call_id)[0]
    return restored


def _results(earlier: Sequence[tuple[int, CompletionsMessage]]) -> list[Result]:
    """Return the results at the end of the history; they belong to the history's last calls."""
    found: list[Result] = []
    for at, message in reversed(earlier):
        if message.role != "tool":
            break
        if not message.tool_call_id:
            raise BadRequest("a result has a tool_call_id", path=f"/messages/{at}/tool_call_id")
        own, chat_id = read_call_id(message.tool_call_id)
        found.append(Result(own, chat_id, _text(message.content, f"/messages/{at}/content"), at))
    return found[::-1]


def _tools(tools: Sequence[JsonObject]) -> list[DeclaredTool]:
    """Return the tools of the caller. OpenAI's tools need no description, but this server's tools do. A missing
    description becomes the tool's name."""
    found: list[DeclaredTool] = []
    for at, tool in enumerate(tools):
        function = tool.get("function")
        if tool.get("type") != "function" or not isinstance(function, dict):
            raise BadRequest("tools: this server takes tools of the type function", path=f"/tools/{at}/type")
        name = function.get("name")
        declared = {
            "name": name,
            "description": function.get("description") or name,
            "input_schema": function.get("parameters") or {},
        }
        try:
            found.append(msgspec.convert(declared, DeclaredTool))
        except msgspec.ValidationError as wrong:
            raise BadRequest(f"tools: {wrong}", path=f"/tools/{at}/function") from None
    return found
