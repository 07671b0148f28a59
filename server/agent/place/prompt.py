"""The system prompt: ordered sections to one text, built anew for every model call (CTX-2). Pure.

Each section is a function of a `PromptContext` and may have nothing to say. A profile names its sections in order, or
has `STANDARD_SECTIONS`; an operator's Python file adds its own, for every place or for one:

    @section()
    def opening_hours(prompt: PromptContext) -> str:
        return "The shop is open from 9 to 17."

    @section(scope="reports/articles")
    def article(prompt: PromptContext) -> str:
        return f"The user reads the article {prompt.context.get('article_id')}."

`request.py` gathers the context. The text leaves the server only in a model's request and, by permission, in
diagnostics.
"""

import inspect
import re
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import msgspec
import structlog

from protocol.messages import JsonObject
from server.agent.place.payload_types import Action, PayloadType
from server.agent.place.scopes import TOP, is_within
from server.foreign import pass_on
from server.providers.base import ToolSpec
from server.tools.traits import Scope, scope_at

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
"""Of a highlighted value: an id or a title. The whole stands in the JSON below it, which the wire bounds (64 KiB)."""

INTERACTION_MAX_CHARACTERS = 16_000
"""Of an interaction's data, as JSON: a filled-in form, about 4,000 tokens. The rest is cut, and a note says so."""

MANIFEST_MAX_COUNT = 100
"""Lines of the manifest, the newest; older payloads are counted, and can still be asked for by id."""

SUMMARY_MAX_CHARACTERS = 200
"""Of a payload's summary, or a tool's first sentence: one line."""

_log = structlog.get_logger()


class PayloadLine(msgspec.Struct, frozen=True):
    """What a prompt says of a payload; its data is not part of it (PAY-8)."""

    payload_id: str
    type: str
    summary: str


class PromptContext(msgspec.Struct, frozen=True, kw_only=True):
    """What sections are written from. `context` is the client's word, `roles` that of authentication (CTX-7).

    `user` is the id of who started the run, `metadata` the thread's. `interaction` is that of the last user message
    (CMD-18). `tools`, `payload_types` and `actions` are exactly those
    of this request; `payloads` those of the active path, oldest first.
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
    """A named part of prompts. `write` returns '' when there is nothing to say. It runs in chats within `scope` alone;
    () is everywhere."""

    name: str
    write: Write
    scope: Scope = TOP


def section(name: str = "", *, scope: str = "") -> Callable[[Write], Section]:
    """Make a section of a function; profiles use it by `name` (unset: the function's) in their `sections`.

    It runs on the event loop before every model call, so it must not wait for anything. An exception in it is logged,
    and the prompt is sent without the section. With a `scope`, such as "reports/articles", it runs in that place and
    inside it, and nowhere else. Sections of one name for several scopes are one to a profile: the most specific one
    runs.

    Raises:
        ValueError: the name is not allowed or belongs to a standard section, or the scope is no place.
        TypeError: the function is a coroutine function, or the decorator has no parentheses.
    """
    if not isinstance(name, str):
        raise TypeError("write @section() above the function, with parentheses")
    place = scope_at(scope)
    if len(place) != len([part for part in scope.split("/") if part]):
        raise ValueError(f"section {name!r}: the scope {scope!r} is no place; write one to three names with / between")

    def register(write: Write) -> Section:
        own = name or write.__name__
        if not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", own):
            raise ValueError(f"section {own!r}: a section's name is 1 to 64 characters of A-Z a-z 0-9 _ -")
        if own in SECTIONS:
            raise ValueError(
                f"section {own!r}: this is a standard section; choose another name and use it in `sections`"
            )
        if inspect.iscoroutinefunction(write):
            raise TypeError(f"section {own}: it must be a plain function; fetch things in a tool, or send them along")
        return Section(own, _Guarded(own, write), place)

    return register


def sections_at(scope: Scope, sections: Sequence[Section]) -> tuple[Section, ...]:
    """Return the sections that run in a place: the most specific one of each name, at the position of the first of that
    name."""
    found: dict[str, Section] = {}
    for each in sections:
        known = found.get(each.name)
        if is_within(scope, each.scope) and (known is None or len(each.scope) > len(known.scope)):
            found[each.name] = each
    return tuple(found.values())


class _Guarded:
    """A function of the operator's, which may raise anything: the boundary of foreign code."""

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
            # Where and what, but not the error's own words: they may hold the prompt, which no log line shows (CTX-8).
            line = traceback.extract_tb(wrong.__traceback__)[-1].lineno
            _log.warning("section.failed", section=self._name, error=type(wrong).__name__, line=line)
            return ""
        return text.encode(errors="replace").decode()  # without lone surrogates, which no request can hold


def system_prompt(sections: Sequence[Section], prompt: PromptContext) -> str:
    """The sections that have something to say, in order, an empty line between them."""
    texts = (section.write(prompt).strip() for section in sections)
    return "\n\n".join(text for text in texts if text)


# The standard ones.


def _identity(prompt: PromptContext) -> str:
    return prompt.identity


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
    """The value of a key, which may be dotted; None when there is none."""
    if key in context:
        return context[key]
    first, dot, rest = key.partition(".")
    inner = context.get(first)
    return _at(inner, rest) if dot and isinstance(inner, dict) else None


def _short(value: object) -> str:
    """On one line, so that a value cannot pass for another line of the prompt."""
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
    """The manifest (PAY-7)."""
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
    """From the registries, for exactly what is offered (CTX-5)."""
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
    """Only where there is more than tools, which every request describes anyway."""
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
        ("identity", _identity),
        ("context", _context),
        ("payloads", _payloads),
        ("capabilities", _capabilities),
        ("custom_instructions", _custom_instructions),
        ("guidelines", _guidelines),
    )
}
"""By the names that profiles use, in the order of CTX-2."""

STANDARD_SECTIONS: tuple[Section, ...] = tuple(
    Section(name, _brief_capabilities) if name == "capabilities" else standard for name, standard in SECTIONS.items()
)
"""Of a profile that names none."""


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
