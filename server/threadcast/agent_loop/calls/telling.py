"""Divides a tool's result into the text for the model and the text for clients. Clients see the whole result, a
summary, or nothing (TOOL-8, EVT-10).

The functions are pure, except for a tool author's own summarizer. If this summarizer fails, a note replaces the result.
The loop calls `tell` before images and long texts are stored as blobs, so that no part of a hidden result gets a public
address.
"""

import re
from collections.abc import Sequence
from contextlib import suppress

import msgspec
import structlog
from msgspec.structs import replace

from threadcast.base.boundary import pass_on
from threadcast.chat.tool_results import LOGGED_RESULT_MAX_BYTES, cut_text, take_images
from threadcast.tools.base import Payload, Tool, ToolResult
from threadcast.tools.runner import PAYLOADS_MAX_BYTES
from threadcast.tools.traits import Summarizer
from threadcast_protocol.wire.bodies import read_json

__all__ = ["HIDDEN", "SUMMARY_MAX_CHARACTERS", "Told", "summarized", "tell"]

HIDDEN = "[Only the model reads this result.]"
"""The text that clients see in place of a hidden result. If a tool's results are hidden, its errors are hidden, too,
because an error may quote hidden data."""

SUMMARY_MAX_CHARACTERS = 300
"""The maximum length of a summary that is the first sentence or line of a result. A text of this length fills two lines
of a tool panel."""

_SENTENCE_END = re.compile(r"(?<=[.!?…。])\s|\n")

_log = structlog.get_logger()


class Told(msgspec.Struct, frozen=True):
    """A divided result. Clients see `result`. The model reads the text `withheld` instead, or the same result as
    clients if `withheld` is None."""

    result: ToolResult
    withheld: str | None = None


def tell(result: ToolResult, tool: Tool | None) -> Told:
    """Divide a result according to the traits of its tool."""
    if tool is None:
        return Told(result)
    traits = tool.traits
    text = result.content
    if traits.summarize is not None and not result.failed:
        text = summarized(text, traits.summarize)
    if traits.visibility == "full":
        return Told(replace(result, content=text, payloads=result.payloads or _payloads(result, tool)))
    text, _ = take_images(text)  # a stored image would get a public address
    private = cut_text(text, LOGGED_RESULT_MAX_BYTES)
    shown = HIDDEN if traits.visibility == "hidden" else _first_line(private)
    return Told(replace(result, content=shown), private if private != shown else None)


def summarized(text: str, summarize: Summarizer) -> str:
    """Return the summary that `summarize` makes of a result's text. If `summarize` is a list of fields and the text is
    not JSON, the summary is only the first sentence, because the whole text might contain other fields."""
    if callable(summarize):
        try:
            return str(summarize(text))
        except BaseException as wrong:  # the boundary of an author's function
            pass_on(wrong)
            _log.warning("tool.not_summarized", exc_info=True)
            return f"The tool ran; its result could not be summarised ({type(wrong).__name__})."
    if summarize != "first_sentence":
        with suppress(ValueError):
            return msgspec.json.encode(_only(read_json(text, mends=True), summarize)).decode()
    return _short(_SENTENCE_END.split(text.strip(), maxsplit=1)[0])


def _only(value: object, fields: Sequence[str]) -> object:
    """Return `value` with only the given fields; if `value` is a list, this applies to each object in the list. The
    field `a.b` means the field b of the object, or of each object in the list, at a."""
    if isinstance(value, list):
        return [_only(each, fields) for each in value]
    if not isinstance(value, dict):
        return value
    inner: dict[str, list[str]] = {}
    for field in fields:
        head, dot, rest = field.partition(".")
        inner.setdefault(head, []).extend([rest] if dot else [])
    return {key: _only(value[key], rest) if rest else value[key] for key, rest in inner.items() if key in value}


def _payloads(result: ToolResult, tool: Tool) -> list[Payload]:
    """Return the JSON of a result as a payload, if the tool's traits name a payload type. Called only for a result
    without payloads. A JSON list becomes an object with the field `items`."""
    if not tool.traits.payload_type or result.failed or tool.policy == "preview":
        return []
    try:
        found = read_json(result.content, mends=True)
    except ValueError:
        return []
    data = {"items": found} if isinstance(found, list) else found
    if not isinstance(data, dict) or len(result.content.encode()) > PAYLOADS_MAX_BYTES:
        return []
    return [Payload(tool.traits.payload_type, data, f"The result of {tool.name}.")]


def _first_line(text: str) -> str:
    return _short(text.strip().partition("\n")[0])


def _short(text: str) -> str:
    return text if len(text) <= SUMMARY_MAX_CHARACTERS else text[: SUMMARY_MAX_CHARACTERS - 1] + "…"
