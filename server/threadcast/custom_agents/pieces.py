"""The pieces of which an agent's round consists, and their translation into the deltas of a provider. Pure."""

import base64
from typing import TypeAlias

import msgspec

from threadcast.providers.base import (
    AgentDataDelta,
    Citation,
    Delta,
    ProviderData,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    UsageReported,
)
from threadcast_protocol.wire.decoders import decode_any
from threadcast_protocol.wire.mending import mend_text, mended_json
from threadcast_protocol.wire.messages import JsonObject, Usage

__all__ = [
    "DATA_MAX_BYTES",
    "KEEP_MAX_BYTES",
    "Call",
    "Citation",
    "Data",
    "Keep",
    "Piece",
    "Reasoning",
    "Text",
    "Usage",
    "delta_of",
    "kept_in",
]

KEEP_MAX_BYTES = 256_000
"""The maximum bytes of `Keep` in one round, which is also the maximum of a tool's result. The chat's state holds these
bytes for its newest 256 answers."""

DATA_MAX_BYTES = 256_000
"""The maximum bytes of one `Data` as JSON. Every reader receives the data, and the log holds it as long as other
events."""

TYPE_MAX_CHARACTERS = 128


class Text(msgspec.Struct, frozen=True):
    """Text of the answer. An agent may also yield a plain `str`."""

    text: str


class Reasoning(msgspec.Struct, frozen=True):
    """Text of the agent's reasoning, which is shown apart from the answer (EVT-7)."""

    text: str


class Call(msgspec.Struct, frozen=True):
    """A call of an offered tool. The server asks people if the tool's policy requires that, runs the tool, and begins
    the next round with the result. `id` is the call's id if the agent has its own."""

    name: str
    args: JsonObject = {}
    id: str | None = None


class Data(msgspec.Struct, frozen=True):
    """Data for clients, who receive it in the event `agent_data` with this `type` and `data`. The chat does not keep
    the data."""

    type: str
    data: JsonObject = {}


class Keep(msgspec.Struct, frozen=True):
    """Private state of the agent's framework. The server stores it with the answer and gives it back as `message.keep`.
    The state never leaves the server. A later `Keep` of the same round replaces an earlier `Keep`."""

    data: bytes


Piece: TypeAlias = str | Text | Reasoning | Call | Usage | Citation | Data | Keep


def delta_of(piece: object, agent: str, call_index: int) -> Delta:
    """Return the delta of one piece. `call_index` is the number of calls before the piece in the round.

    Raises:
        TypeError: the value is not a piece.
        ValueError: the piece is too large, or contains a value that JSON cannot express.
    """
    match piece:
        case str():
            return TextDelta(mend_text(piece))
        case Text(text=text):
            return TextDelta(mend_text(text))
        case Reasoning(text=text):
            return ReasoningDelta(mend_text(text))
        case Call(name=name, args=args, id=call_id):
            return ToolCallDelta(call_index, call_id, mend_text(name), mended_json(args).decode())
        case Usage():
            return UsageReported(piece)
        case Citation(citation=citation):
            return Citation(decode_any(mended_json(citation)))
        case Data(type=kind, data=data):
            if not 0 < len(kind) <= TYPE_MAX_CHARACTERS:
                raise ValueError(f"the type of a Data has 1 to {TYPE_MAX_CHARACTERS} characters")
            encoded = mended_json(data)
            if len(encoded) > DATA_MAX_BYTES:
                raise ValueError(f"a Data has at most {DATA_MAX_BYTES} bytes as JSON, not {len(encoded)}")
            return AgentDataDelta(kind, decode_any(encoded))
        case Keep(data=kept):
            if len(kept) > KEEP_MAX_BYTES:
                raise ValueError(f"a Keep has at most {KEEP_MAX_BYTES} bytes, not {len(kept)}")
            return ProviderData({"agent": agent, "keep": base64.b64encode(kept).decode()})
    raise TypeError(
        f"an agent may yield str, Text, Reasoning, Call, Usage, Citation, Data and Keep, not {type(piece).__name__}"
    )


def kept_in(stored: list[JsonObject], agent: str) -> bytes:
    """Return the last `Keep` of an answer of this agent; b'' if the answer has no `Keep` of this agent."""
    of_agent = [each["keep"] for each in stored if each.get("agent") == agent]
    return base64.b64decode(of_agent[-1]) if of_agent else b""
