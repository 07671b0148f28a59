"""Passes questions of an MCP server, its requests `elicitation/create` (MCP specification 2025-06-18), on to people.

A server asks on its connection, which many chats share, and the request does not name the tool call to which it
belongs. Over streamable HTTP, and in the newer protocol that embeds questions in results, the request arrives in the
context of its call. Otherwise the chat is known only if all calls in progress belong to one chat. A question is never
shown in a chat that may be the wrong chat.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import anyio
import structlog

from threadcast.base.boundary import pass_on
from threadcast.chat.questions import QUESTION_TEXT_MAX_CHARACTERS
from threadcast.tools.context import ToolContext
from threadcast.tools.mcp.access import has_control_characters
from threadcast.tools.questions import NotAnswered
from threadcast_protocol.wire.messages import JsonObject

if TYPE_CHECKING:
    import mcp_types

__all__ = ["AskingCall", "Elicitations", "Slot", "current_call", "form_schema", "plain_text"]

_log = structlog.get_logger()

QUESTIONS_MAX = 5
"""The maximum questions of one call. People who are asked again and again stop reading the questions."""

OPEN_MAX = 48
"""The maximum open questions of one server. A server with more than `REQUESTS_OPEN_MAX` (traffic.py) open questions
would be disconnected."""

PROPERTIES_MAX = 50
TEXT_MAX_CHARACTERS = 500
"""The maximum length of a field's title or description, and of a choice."""

CHOICES_MAX = 100

_KEPT = {
    "string": ("minLength", "maxLength", "format"),
    "number": ("minimum", "maximum"),
    "integer": ("minimum", "maximum"),
    "boolean": (),
}
"""The keywords of a field that are passed on, by its type. A `pattern` is left out, because checking an answer against
the regular expression of a stranger can take exponential time."""

_SECRETS = ("password",)
"""Formats of fields that no server may request."""


class Slot:
    """The place of a request among the requests that run at the same time. A request leaves its place while it asks
    people, so that open questions do not stop other calls of the server."""

    def __init__(self, slots: anyio.Semaphore) -> None:
        """Hold a place that was already acquired from `slots`."""
        self._slots = slots
        self._is_held = True
        self._is_over = False
        self._leaving_count = 0

    def end(self) -> None:
        self._is_over = True
        self._settle()

    def _settle(self) -> None:
        """Give the place back if the request has ended; it may have ended while it waited for the place."""
        if self._is_over:
            self._give_back()

    def _give_back(self) -> None:
        if self._is_held:
            self._is_held = False
            self._slots.release()

    @asynccontextmanager
    async def left(self) -> AsyncIterator[None]:
        """Leave the place during the block. When the last of several such blocks ends, the request waits for a place
        again."""
        self._leaving_count += 1
        self._give_back()
        try:
            yield
        finally:
            self._leaving_count -= 1
        if not self._leaving_count and not self._is_over:
            await self._slots.acquire()
            self._is_held = True
            self._settle()


class AskingCall:
    """A call of a server's tool that may ask people, with the `context` of the call. `close` ends its questions. `slot`
    is the place of its present request."""

    def __init__(self, context: ToolContext) -> None:
        self.context = context
        self.slot: Slot | None = None
        self.count = 0
        self.is_closed = False
        self._scopes: set[anyio.CancelScope] = set()

    async def ask(self, text: str, schema: JsonObject) -> Any:  # Any: JSON that fits the schema
        """Return the answer. Raises NotAnswered if there is no answer or the call ends meanwhile."""
        with anyio.CancelScope() as scope:
            self._scopes.add(scope)
            try:
                if not self.is_closed:
                    async with self.slot.left() if self.slot is not None else nullcontext():
                        return await self.context.ask(text, schema=schema)
            finally:
                self._scopes.discard(scope)
        raise NotAnswered("The call has ended.", "refused")

    def close(self) -> None:
        self.is_closed = True
        for scope in self._scopes:
            scope.cancel()


current_call: ContextVar[AskingCall | None] = ContextVar("current_call", default=None)
"""The tool call that the current task carries out. The task's requests to the server, and the server's questions,
belong to this call."""


class Elicitations:
    """The calls of the server `name` that are in progress, and the questions that the server asks meanwhile."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._calls: set[AskingCall] = set()
        self._open_count = 0

    def begin(self, call: AskingCall) -> None:
        self._calls.add(call)

    def end(self, call: AskingCall) -> None:
        self._calls.discard(call)
        call.close()

    async def answer(
        self, context: object, params: "mcp_types.ElicitRequestParams"
    ) -> "mcp_types.ElicitResult | mcp_types.ErrorData":
        """Ask a person the server's question, and return the answer to the server. Never raises an error."""
        import mcp_types

        call = self._call()
        why = ""
        if params.mode != "form":
            why = "only forms can be shown; a link is not"
        elif call is None:
            why = "it is not clear which of the calls in progress asks, because several chats call this server"
        elif (schema := form_schema(params.requested_schema)) is None:
            why = "requestedSchema is not a flat object of texts, numbers, booleans and choices, without passwords"
        else:
            call.count += 1
            is_too_often = call.count > QUESTIONS_MAX or self._open_count >= OPEN_MAX
            outcome = "cancel" if is_too_often else await self._asked(call, params.message, schema)
            if is_too_often:
                _log.warning("mcp.question_dropped", server=self.name, chat_id=call.context.chat_id)
            if isinstance(outcome, str):
                return mcp_types.ElicitResult(action="decline" if outcome == "decline" else "cancel")
            return mcp_types.ElicitResult(action="accept", content=outcome)
        _log.warning("mcp.question_refused", server=self.name, error=why)
        return mcp_types.ErrorData(code=mcp_types.INVALID_PARAMS, message=f"the question was not shown: {why}")

    def _call(self) -> AskingCall | None:
        """Return the call to which a question belongs; None if the call cannot be determined."""
        call = current_call.get()
        if call is not None:
            return None if call.is_closed else call
        chats = {each.context.chat_id for each in self._calls}
        return next(iter(self._calls)) if len(chats) == 1 else None

    async def _asked(self, call: AskingCall, message: str, schema: JsonObject) -> JsonObject | str:
        """Return the content of the answer, or "decline" or "cancel"."""
        self._open_count += 1
        try:
            found: JsonObject = await call.ask(plain_text(message) or "It asks for the following.", schema)
        except NotAnswered as unanswered:
            return "decline" if unanswered.reason == "rejected" else "cancel"
        except BaseException as wrong:  # boundary: the run or the ownership has ended
            pass_on(wrong)
            _log.warning("mcp.question_failed", server=self.name, error=type(wrong).__name__)
            return "cancel"
        finally:
            self._open_count -= 1
        return found


def plain_text(text: str) -> str:
    """Return a server's text without control characters, cut to the maximum length of a question."""
    kept = (character for character in text if character == "\n" or not has_control_characters(character))
    return "".join(kept).strip()[:QUESTION_TEXT_MAX_CHARACTERS]


def form_schema(requested: object) -> JsonObject | None:
    """Return the schema of a form with the parts of `requested` that the specification allows; None if the server asks
    for anything else."""
    if not isinstance(requested, dict) or requested.get("type", "object") != "object":
        return None
    properties = requested.get("properties", {})
    required = requested.get("required", [])
    if not isinstance(properties, dict) or not isinstance(required, list) or len(properties) > PROPERTIES_MAX:
        return None
    fields: JsonObject = {}
    for name, wanted in properties.items():
        field = _field(wanted) if isinstance(name, str) and isinstance(wanted, dict) else None
        if field is None:
            return None
        fields[name] = field
    return {
        "type": "object",
        "properties": fields,
        "required": [name for name in dict.fromkeys(map(str, required)) if name in fields],
        "additionalProperties": False,
    }


def _field(wanted: JsonObject) -> JsonObject | None:
    """Return the schema of one field; None if a form cannot contain it."""
    kind = wanted.get("type")
    field: JsonObject = {}
    for key in ("title", "description"):
        if isinstance(wanted.get(key), str):
            field[key] = plain_text(wanted[key])[:TEXT_MAX_CHARACTERS]
    if isinstance(wanted.get("default"), str | int | float | bool | list):
        field["default"] = wanted["default"]
    if kind == "array":
        choices = _choices(wanted.get("items"), "anyOf")
        return None if not choices else {**field, "type": "array", "items": choices, **_numbers(wanted, _LENGTHS)}
    if kind == "string" and (choices := _choices(wanted, "oneOf")) is not None:
        return {**field, **choices} if choices else None
    if kind not in _KEPT or wanted.get("format") in _SECRETS:
        return None
    field["type"] = kind
    if kind == "string" and isinstance(wanted.get("format"), str):
        field["format"] = wanted["format"]
    return {**field, **_numbers(wanted, _KEPT[kind])}


_LENGTHS = ("minItems", "maxItems")


def _numbers(wanted: JsonObject, keys: tuple[str, ...]) -> JsonObject:
    """Return those of the limits `keys` whose values are numbers."""
    found = {key: wanted.get(key) for key in keys}
    return {
        key: value for key, value in found.items() if isinstance(value, int | float) and not isinstance(value, bool)
    }


def _choices(wanted: object, titled: str) -> JsonObject | None:
    """Return the choices of a field, as `enum` or as constants with titles; {} if they cannot be shown, None if the
    field is not a choice."""
    if not isinstance(wanted, dict):
        return {}
    values, names = wanted.get("enum"), wanted.get("enumNames")
    constants = wanted.get(titled)
    if values is None and constants is None:
        return None
    if isinstance(constants, list):
        values = [each.get("const") if isinstance(each, dict) else None for each in constants]
        names = [each.get("title", each.get("const")) if isinstance(each, dict) else None for each in constants]
    if not isinstance(values, list) or not values or len(values) > CHOICES_MAX or not all(map(_is_choice, values)):
        return {}
    if isinstance(names, list) and len(names) == len(values) and all(map(_is_choice, names)):
        pairs = zip(values, names, strict=True)
        return {"type": "string", titled: [{"const": value, "title": plain_text(name)} for value, name in pairs]}
    return {"type": "string", "enum": list(dict.fromkeys(values))}


def _is_choice(value: object) -> bool:
    return isinstance(value, str) and 0 < len(value) <= TEXT_MAX_CHARACTERS
