"""Builds the system prompt from ordered sections, separately for each model call (CTX-2). Pure.

Each section is a function that gets a `PromptContext` and returns a text, or ''. A profile names its sections in order,
or has `STANDARD_SECTIONS`. An operator's Python file may define further sections, for all scopes or for one scope:

    @section()
    def opening_hours(prompt: PromptContext) -> str:
        return "The shop is open from 9 to 17."

    @section(scope="reports/articles")
    def article(prompt: PromptContext) -> str:
        return f"The user reads the article {prompt.context.get('article_id')}."

`agent_loop/history/request.py` builds the context. The prompt leaves the server only in a model's request and, with a
permission, in diagnostics.
"""

import inspect
import re
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import msgspec
import structlog

from threadcast.base.boundary import pass_on
from threadcast.chat.scopes import TOP, Scope, is_within, scope_at
from threadcast.profiles.payload_types import Action, PayloadType
from threadcast.providers.base import ToolSpec
from threadcast_protocol.wire.messages import JsonObject

__all__ = [
    "SECTIONS",
    "STANDARD_SECTIONS",
    "PayloadLine",
    "PromptContext",
    "Section",
    "section",
    "sections_at",
    "system_prompt",
]

HIGHLIGHT_MAX_CHARACTERS = 500
"""The maximum length of a highlighted value, such as an id or a title. The JSON below the highlights has the whole
value; the wire bounds that JSON to 64 KiB."""

INTERACTION_MAX_CHARACTERS = 16_000
"""The maximum length of an interaction's data as JSON: a filled-in form of about 4,000 tokens. Longer data is cut, and
ends in a note with the full length."""

MANIFEST_MAX_COUNT = 100
"""The maximum number of lines of the manifest, which lists the newest payloads. The manifest only counts older
payloads, but the model can still read them by id."""

SUMMARY_MAX_CHARACTERS = 200
"""Maximum characters of a payload's summary or of a tool's first sentence, each of which is one line."""

_log = structlog.get_logger()


class PayloadLine(msgspec.Struct, frozen=True):
    """The line of a payload in the manifest, without the payload's data (PAY-8)."""

    payload_id: str
    type: str
    summary: str


class PromptContext(msgspec.Struct, frozen=True, kw_only=True):
    """The values from which sections are written. Clients send `context`; authentication gives `roles` (CTX-7).

    `user` is the id of the principal that started the run; `metadata` is the thread's metadata. `interaction` belongs
    to the last user message (CMD-18). `tools`, `payload_types` and `actions` are exactly the tools, types and actions
    of this request; `payloads` are the payloads of the active path, oldest first.
    """

    identity: str = ""
    context: JsonObject = {}
    highlight: Sequence[str] = ()
    interaction: JsonObject | None = None
    user: str = ""
    roles: Sequence[str] = ()
    metadata: JsonObject = {}
    scope: Scope = ()
    payloads: Sequence[PayloadLine] = ()
    tools: Sequence[ToolSpec] = ()
    payload_types: Mapping[str, PayloadType] = {}
    actions: Mapping[str, Action] = {}
    custom_instructions: Sequence[str] = ()
    guidelines: str = ""


Write: TypeAlias = Callable[[PromptContext], str]


class Section(msgspec.Struct, frozen=True):
    """A named part of prompts. `write` returns the section's text, or ''. The section is used only in chats within
    `scope`; the scope () means all chats."""

    name: str
    write: Write
    scope: Scope = TOP


def section(name: str = "", *, scope: str = "") -> Callable[[Write], Section]:
    """Make a section of a function. Profiles name the section in their `sections`; without `name`, the section has the
    function's name.

    The function runs on the event loop before every model call, so it must not wait for anything. An exception in the
    function is logged, and the prompt is sent without the section. With a `scope`, such as "reports/articles", the
    section is used only in that scope and inside it. If sections for several scopes have the same name, a profile names
    them together, and the most specific section is used.

    Raises:
        ValueError: the name is not allowed or belongs to a standard section, or the scope is not valid.
        TypeError: the function is a coroutine function, or the decorator has no parentheses.
    """
    if not isinstance(name, str):
        raise TypeError("write @section() above the function, with parentheses")
    parsed = scope_at(scope)
    if len(parsed) != len([part for part in scope.split("/") if part]):
        raise ValueError(f"section {name!r}: the scope {scope!r} is not valid; write one to three names with / between")

    def register(write: Write) -> Section:
        own = name or write.__name__
        if not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", own):
            raise ValueError(f"section {own!r}: a section's name is 1 to 64 characters of A-Z a-z 0-9 _ -")
        if own in SECTIONS:
            raise ValueError(
                f"section {own!r}: this is a standard section; choose another name and use it in `sections`"
            )
        if inspect.iscoroutinefunction(write):
            raise TypeError(f"section {own}: it must be a plain function; use a tool to fetch data")
        return Section(own, _Guarded(own, write), parsed)

    return register


def sections_at(scope: Scope, sections: Sequence[Section]) -> tuple[Section, ...]:
    """Return the sections of a scope. Among sections of the same name, the most specific section is returned, at the
    position of the first section that applies."""
    found: dict[str, Section] = {}
    for each in sections:
        known = found.get(each.name)
        if is_within(scope, each.scope) and (known is None or len(each.scope) > len(known.scope)):
            found[each.name] = each
    return tuple(found.values())


class _Guarded:
    """Calls a function of the operator's file. The class is the boundary of foreign code: the function may raise any
    exception."""

    def __init__(self, name: str, write: Write) -> None:
        self._name = name
        self._write = write

    def __call__(self, prompt: PromptContext) -> str:
        try:
            text = self._write(prompt)
            if not isinstance(text, str):
                raise TypeError(f"it returned a {type(text).__name__}, not str")
        except BaseException as wrong:  # boundary: a section must not end a run
            pass_on(wrong)
            # The log gets the line and the type of the error, but not its message, which may contain the prompt
            # (CTX-8).
            line = traceback.extract_tb(wrong.__traceback__)[-1].lineno
            _log.warning("section.failed", section=self._name, error=type(wrong).__name__, line=line)
            return ""
        return text.encode(errors="replace").decode()  # requests cannot contain lone surrogates


def system_prompt(sections: Sequence[Section], prompt: PromptContext) -> str:
    """Return the texts of the sections in order, with an empty line between them; empty texts are left out."""
    texts = (section.write(prompt).strip() for section in sections)
    return "\n\n".join(text for text in texts if text)


# The standard ones.


def _context(prompt: PromptContext) -> str:
    lines = [
        f"{key}: {_short(value)}" for key in prompt.highlight if (value := _at(prompt.context, key)) not in (None, "")
    ]
    if prompt.context:
        lines.append(_json(prompt.context))
    if prompt.interaction is not None:
        lines.append(_interaction(prompt.interaction))
    if prompt.roles:
        lines.append(f"The user's roles, by authentication: {', '.join(sorted(prompt.roles))}")
    return "\n".join(["# Context", *lines]) if lines else ""


def _at(context: JsonObject, key: str) -> object:
    """Return the value of a key, which may be dotted; None if the context has no such key."""
    if key in context:
        return context[key]
    first, dot, rest = key.partition(".")
    inner = context.get(first)
    return _at(inner, rest) if dot and isinstance(inner, dict) else None


def _short(value: object) -> str:
    """Return the value on one line, so that it cannot look like another line of the prompt."""
    is_plain = isinstance(value, str) and value.isprintable()
    return _cut(str(value) if is_plain else _json(value), HIGHLIGHT_MAX_CHARACTERS)


def _interaction(interaction: JsonObject) -> str:
    words = f"The user's last message is an interaction: {interaction.get('type')}"
    if action := interaction.get("action"):
        words += f", action {_json(action)}"
    if (data := interaction.get("data")) is not None:
        words += f", data {_cut(_json(data), INTERACTION_MAX_CHARACTERS)}"
    return words


def _payloads(prompt: PromptContext) -> str:
    """Write the manifest of the payloads (PAY-7)."""
    if not prompt.payloads:
        return ""
    shown = prompt.payloads[-MANIFEST_MAX_COUNT:]
    older = len(prompt.payloads) - len(shown)
    can_read = any(tool.name == "get_payload" for tool in prompt.tools)
    lines = [
        "# Payloads",
        "The user has been shown these."
        + (" Read the data of one by get_payload when you need it." if can_read else ""),
        *([f"({older} older ones are left out.)"] if older else []),
        *(f"- {line.payload_id} ({line.type}): {_first_line(line.summary)}" for line in shown),
    ]
    return "\n".join(lines)


def _capabilities(prompt: PromptContext) -> str:
    """Write the list of what the model can do, with exactly the tools, payload types and actions of this request
    (CTX-5)."""
    parts: list[str] = []
    if prompt.tools:
        named = [f"- {tool.name}: {_first_sentence(tool.description)}".removesuffix(": ") for tool in prompt.tools]
        parts.append("\n".join(["Tools you can call:", *named]))
    written = [kind for kind in prompt.payload_types.values() if kind.marker]
    if written:
        parts.append("\n".join(_how_to_show(written)))
    from_tools = [kind for kind in prompt.payload_types.values() if not kind.marker]
    if from_tools:
        named = [f"- {kind.name}: {_first_line(kind.description)}".removesuffix(": ") for kind in from_tools]
        parts.append("\n".join(["Tools show these to the user beside your answer:", *named]))
    if prompt.actions:
        parts.append("\n".join(_how_to_suggest(prompt.actions)))
    parts.append(
        "To offer values that the user can answer with, write on a line of its own at the end\n"
        'SUGGESTED_VALUES: [{"label": "…", "value": "…"}]'
    )
    return "\n\n".join(["# What you can do", *parts])


def _brief_capabilities(prompt: PromptContext) -> str:
    """Write the capabilities only if there are payload types or actions, because every request describes the tools
    anyway."""
    return _capabilities(prompt) if prompt.payload_types or prompt.actions else ""


def _how_to_show(kinds: Sequence[PayloadType]) -> list[str]:
    lines = [
        "You can show structured data. On a line of its own write the marker, a colon and JSON that fits the schema; "
        "it is taken out of your answer and shown beside it.",
    ]
    for kind in kinds:
        lines.append(f"- {kind.name}: {_first_line(kind.description)}".removesuffix(": "))
        lines.append(f"  Write: {kind.marker}: {{json}}")
        if kind.schema:
            lines.append(f"  JSON Schema: {_json(kind.schema)}")
    return lines


def _how_to_suggest(actions: Mapping[str, Action]) -> list[str]:
    lines = [
        "You can offer buttons. On a line of its own at the end of your answer write",
        'SUGGESTED_ACTIONS: [{"label": "…", "action": "…", "handler": "client"}]',
        "with any of these actions and no others:",
    ]
    for action in actions.values():
        told = " - ".join(part for part in (action.label, _first_line(action.description)) if part)
        lines.append(f"- {action.action} (handler {action.handler}){f': {told}' if told else ''}")
    return lines


def _custom_instructions(prompt: PromptContext) -> str:
    said = [text.strip() for text in prompt.custom_instructions if text.strip()]
    return "\n\n".join(["# Instructions", *said]) if said else ""


def _guidelines(prompt: PromptContext) -> str:
    text = prompt.guidelines.strip()
    return f"# Guidelines\n{text}" if text else ""


SECTIONS: Mapping[str, Section] = {
    name: Section(name, write)
    for name, write in (
        ("identity", lambda prompt: prompt.identity),
        ("context", _context),
        ("payloads", _payloads),
        ("capabilities", _capabilities),
        ("custom_instructions", _custom_instructions),
        ("guidelines", _guidelines),
    )
}
"""The standard sections by the names that profiles use, in the order of CTX-2."""

STANDARD_SECTIONS: tuple[Section, ...] = tuple(
    Section(name, _brief_capabilities) if name == "capabilities" else standard for name, standard in SECTIONS.items()
)
"""The sections of a profile that names no sections."""


_encoder = msgspec.json.Encoder()


def _json(value: object) -> str:
    return _encoder.encode(value).decode()


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}… [cut: {len(text)} characters in all]"


def _first_line(text: str) -> str:
    return " ".join(text.split())[:SUMMARY_MAX_CHARACTERS]


def _first_sentence(text: str) -> str:
    line = " ".join(text.partition("\n\n")[0].split())
    sentence, stop, _ = line.partition(". ")
    return (sentence + stop.strip())[:SUMMARY_MAX_CHARACTERS]
