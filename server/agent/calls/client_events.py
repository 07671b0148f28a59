"""Events that a tool sends to those who watch, checked on their way into the log (EVT-19).

Known shapes become the protocol's own structs, browser events go through with whatever fields they have. What cannot
be an event is left out with a line in the server's log: a tool's mistake must not end its run.
"""

from typing import TypeAlias

import msgspec
import structlog

from protocol.events import BackgroundAgentUpdated, ProcessCompleted, Relayed, SubchatUpdate
from protocol.mending import mended_json
from protocol.messages import JsonObject
from server.tools.base import PASSED_ON, ClientEvent

__all__ = ["EVENT_MAX_BYTES", "Emitted", "as_event"]

Emitted: TypeAlias = SubchatUpdate | BackgroundAgentUpdated | ProcessCompleted | Relayed

_log = structlog.get_logger()

EVENT_MAX_BYTES = 256_000
"""A screenshot at a moderate size. It goes to every watcher and stays in the log as long as its neighbours."""

_SHAPES: dict[str, type[SubchatUpdate | BackgroundAgentUpdated | ProcessCompleted]] = {
    "subchat_update": SubchatUpdate,
    "background_agent_updated": BackgroundAgentUpdated,
    "process_completed": ProcessCompleted,
}


def as_event(emitted: ClientEvent) -> Emitted | None:
    """The public event, or None when it is none."""
    trouble = ""
    if emitted.type not in PASSED_ON:
        trouble = "a tool may not emit this type"
    else:
        try:
            encoded = mended_json(emitted.fields)
            fields: JsonObject = msgspec.json.decode(encoded)
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
