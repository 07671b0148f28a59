"""The state of a remote agent: JSON that the agent replaces, or changes by JSON Patch (RFC 6902). Pure."""

from typing import Any

import jsonpatch
import msgspec

from threadcast_protocol.wire.decoders import decode_any
from threadcast_protocol.wire.messages import JsonObject

__all__ = ["COPIES_MAX", "OPERATIONS_MAX", "STATE_MAX_BYTES", "changed", "checked"]

STATE_MAX_BYTES = 128_000
"""Maximum bytes of the state as JSON, and of one change of the state: half of the data that a message may keep. The
state is sent with each run."""

OPERATIONS_MAX = 1_000
"""Maximum operations of one change."""

COPIES_MAX = 20
"""Maximum `copy` operations of one change; each operation takes up to 10 ms."""


def checked(state: Any) -> Any:  # Any: JSON
    """Return the state. Raises ValueError if the state is too large."""
    size = len(msgspec.json.encode(state))
    if size > STATE_MAX_BYTES:
        raise ValueError(
            f"the agent's state, or a change of it, has {size:,} bytes as JSON; {STATE_MAX_BYTES:,} are possible"
        )
    return state


def changed(state: Any, patch: list[JsonObject]) -> Any:  # Any: JSON
    """Return the state after a change. Raises ValueError: the change does not fit the state, or is too large."""
    if len(patch) > OPERATIONS_MAX:
        raise ValueError(f"a change of the state has {len(patch):,} operations; {OPERATIONS_MAX:,} are possible")
    checked(patch)  # jsonpatch copies each value
    if sum(operation.get("op") == "copy" for operation in patch) > COPIES_MAX:
        raise ValueError(f"a change of the state copies more than {COPIES_MAX} times")
    # The state is copied once and changed in place, because jsonpatch's own copy for each operation takes 20 ms.
    state = decode_any(msgspec.json.encode(state))
    for operation in patch:
        try:
            state = jsonpatch.apply_patch(state, [operation], in_place=True)
            if operation.get("op") == "copy":  # a copy may double the state, so the state is checked after each copy
                checked(state)
        except (
            jsonpatch.JsonPatchException,
            jsonpatch.JsonPointerException,
            TypeError,
            KeyError,
            RecursionError,
        ) as wrong:
            raise ValueError(f"a change does not fit the agent's state: {wrong}"[:300]) from None
    return checked(state)
