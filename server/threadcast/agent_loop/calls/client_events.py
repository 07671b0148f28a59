"""Checks the events that a tool sends to the readers of its chat (EVT-19).

Events of known types become structs of the protocol; browser events keep all their fields. An invalid event is dropped
and logged as a warning, because a tool's mistake must not end the run.
"""

from typing import TypeAlias

import msgspec
import structlog

from threadcast.tools.context import PASSED_ON, ClientEvent
from threadcast_protocol.framing.codec import Relayed
from threadcast_protocol.wire.decoders import decode_any
from threadcast_protocol.wire.events import BackgroundAgentUpdated, ProcessCompleted, SubchatUpdate
from threadcast_protocol.wire.mending import mended_json
from threadcast_protocol.wire.messages import JsonObject

__all__ = ["EVENT_MAX_BYTES", "Emitted", "as_event"]

Emitted: TypeAlias = SubchatUpdate | BackgroundAgentUpdated | ProcessCompleted | Relayed

_log = structlog.get_logger()

EVENT_MAX_BYTES = 256_000
"""The maximum size of an event, which is the size of a medium-sized screenshot. The size is limited because an event is
sent to every reader and is stored in the log as long as other events."""

_SHAPES: dict[str, type[SubchatUpdate | BackgroundAgentUpdated | ProcessCompleted]] = {
    "subchat_update": SubchatUpdate,
    "background_agent_updated": BackgroundAgentUpdated,
    "process_completed": ProcessCompleted,
}


def as_event(emitted: ClientEvent) -> Emitted | None:
    """Return the public event for `emitted`, or None if `emitted` is invalid."""
    trouble = ""
    if emitted.type not in PASSED_ON:
        trouble = "a tool may not emit this type"
    else:
        try:
            encoded = mended_json(emitted.fields)
            fields: JsonObject = decode_any(encoded)
            if len(encoded) > EVENT_MAX_BYTES:
                trouble = f"larger than {EVENT_MAX_BYTES} bytes"
            elif emitted.type not in _SHAPES:
                return Relayed(emitted.type, fields)
            else:
                return msgspec.convert({**fields, "type": emitted.type}, _SHAPES[emitted.type])
        except (msgspec.ValidationError, TypeError, ValueError) as wrong:
            trouble = str(wrong)
    _log.warning("tool.event_dropped", type=emitted.type, error=trouble)
    return None
