"""What the model and what clients are told of a tool's result (TOOL-8, EVT-10): shortened, whole, or not at all.

Pure but for an author's own summarizer, which may fail and then hides its result rather than showing too much. The loop
calls `tell` on what the runner gave, before images and long texts are laid aside, so that nothing of a hidden result
gets a public address: of such a result no image and no rest is kept.
"""

import re
from collections.abc import Sequence

import msgspec
import structlog
from msgspec.structs import replace

from protocol.bodies import read_json
from server.agent.calls.results import RESULT_MAX_BYTES, take_images
from server.agent.history.attachments import cut_text
from server.foreign import pass_on
from server.tools.base import Payload, Tool, ToolResult
from server.tools.runner import PAYLOADS_MAX_BYTES
from server.tools.traits import Summarizer

__all__ = ["HIDDEN", "SUMMARY_MAX_CHARACTERS", "Told", "summarized", "tell"]

HIDDEN = "[Only the model reads this result.]"
"""What clients see of a hidden result, a failed one too: an error may quote what is hidden."""

SUMMARY_MAX_CHARACTERS = 300
"""Of a first sentence or line: what fits into two lines of a tool panel."""

_SENTENCE_END = re.compile(r"(?<=[.!?…。])\s|\n")

_log = structlog.get_logger()


class Told(msgspec.Struct, frozen=True):
    """`result` is what clients see; `withheld` what the model reads in its place, None for the same."""

    result: ToolResult
    withheld: str | None = None


def tell(result: ToolResult, tool: Tool | None) -> Told:
    """Divide a result by the traits of its tool."""
    if tool is None:
        return Told(result)
    traits = tool.traits
    text = result.content
    if traits.summarize is not None and not result.failed:
        text = summarized(text, traits.summarize)
    if traits.visibility == "full":
        return Told(replace(result, content=text, payloads=result.payloads or _payloads(result, tool)))
    private = cut_text(_without_images(text), RESULT_MAX_BYTES)
    shown = HIDDEN if traits.visibility == "hidden" else _first_line(private)
    return Told(replace(result, content=shown), private if private != shown else None)


def summarized(text: str, summarize: Summarizer) -> str:
    """What `summarize` leaves of a result's text. Whoever names fields wants no other: what is not JSON gives its
    first sentence."""
    if callable(summarize):
        try:
            return str(summarize(text))
        except BaseException as wrong:  # the boundary of an author's function
            pass_on(wrong)
            _log.warning("tool.not_summarized", exc_info=True)
            return f"The tool ran; its result could not be summarised ({type(wrong).__name__})."
    if summarize != "first_sentence":
        try:
            return msgspec.json.encode(_only(read_json(text, mends=True), summarize)).decode()
        except ValueError:
            pass
    return _short(_SENTENCE_END.split(text.strip(), maxsplit=1)[0])


def _only(value: object, fields: Sequence[str]) -> object:
    """The fields of an object, or of each object of a list; `a.b` is the field b of the object, or objects, at a."""
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
    """The whole JSON for clients where the tool has a type for it and gave none itself. A list becomes `{items}`."""
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


def _without_images(text: str) -> str:
    """A hidden image would need an address; the model is told that there was one."""
    return take_images(text)[0]


def _first_line(text: str) -> str:
    return _short(text.strip().partition("\n")[0])


def _short(text: str) -> str:
    return text if len(text) <= SUMMARY_MAX_CHARACTERS else text[: SUMMARY_MAX_CHARACTERS - 1] + "…"
