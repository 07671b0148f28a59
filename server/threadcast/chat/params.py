"""Computes effective values of parameters. Later layers override earlier ones: server default, profile, thread, command
(SET-1, PROTOCOL §16).

The decider, the agent and the endpoints use the same function, so that clients see the value that runs use. A profile
may set only optional keys. The other keys always have a value in the thread, so it is unknown whether the user has set
this value, and a profile must not override a `false` of the user.
"""

from operator import attrgetter
from typing import Any, Literal, NamedTuple, TypeAlias

from threadcast.chat.owner_state import OwnerState
from threadcast_protocol.wire.messages import JsonObject
from threadcast_protocol.wire.thread import ALWAYS_PRESENT, Thread, ThreadPatch

__all__ = [
    "APPROVES_WHOLESALE",
    "MAX_ROUNDS",
    "PARAMS",
    "SAMPLERS",
    "SERVER_DEFAULTS",
    "Effective",
    "Layer",
    "all_set",
    "effective",
]

Layer: TypeAlias = Literal["server", "profile", "thread", "command"]

APPROVES_WHOLESALE = ("autonomous_no_confirm", "auto_approve_editing_tools", "auto_approve_dangerous_commands")
"""Parameters that approve tool calls in advance. Setting these parameters needs the permission to approve (PROTOCOL
§11)."""

MAX_ROUNDS = 20
"""The default maximum of model calls with tools in one run (LOOP-2)."""

SERVER_DEFAULTS: JsonObject = {
    "history_tools": "full",
    "max_history_messages": 0,
    "max_rounds": MAX_ROUNDS,
    "merge_queued": True,
    "on_abort": "keep",
    "on_client_timeout": "continue",
    "on_deny": "continue",
    "on_limit": "stop",
    "on_owner_loss": "auto",
    "reasoning": "stream",
}
"""The server's defaults of optional keys. `Thread` has the defaults of the other keys. If a key has no value in any
layer, the model's provider decides."""

PARAMS: tuple[str, ...] = ThreadPatch.__struct_fields__

SAMPLERS: tuple[str, ...] = ("top_k", "min_p", "repetition_penalty", "seed", "stop")
"""Sampling parameters that only some providers accept; `/v1/caps` lists the accepted parameters of each model (PROTOCOL
§13, §16)."""

_UNSET = Thread(id="-")
_values_of = attrgetter(*PARAMS)


class Effective(NamedTuple):
    """The value of a parameter, and the layer that sets it."""

    value: Any  # Any: each key has the type of its field in ThreadPatch
    layer: Layer


def effective(state: OwnerState, key: str, profile_params: JsonObject) -> Effective:
    """Return the value of `key` for the open run, or for the next run if none is open, and the layer that sets the
    value."""
    run = state.private.run
    if run is not None and run.params.get(key) is not None:
        return Effective(run.params[key], "command")
    if key == "model" and run is not None and run.model:
        return Effective(run.model, "command")
    value = getattr(state.thread, key)
    if value is not None and not (key in ALWAYS_PRESENT and value == getattr(_UNSET, key)):
        return Effective(value, "thread")
    if profile_params.get(key) is not None:
        return Effective(profile_params[key], "profile")
    return Effective(value if value is not None else SERVER_DEFAULTS.get(key), "server")


def all_set(state: OwnerState, profile_params: JsonObject) -> dict[str, Effective]:
    """Return all parameters that are set above the server's defaults, in the order of `PARAMS`. Every model call needs
    these parameters. Most keys are unset, so keys without a value in any layer are skipped early."""
    run = state.private.run
    asked = {} if run is None else run.params
    found: dict[str, Effective] = {}
    for key, own in zip(PARAMS, _values_of(state.thread), strict=True):
        if own is not None or key in asked or key in profile_params or key == "model":
            value = effective(state, key, profile_params)
            if value.layer != "server":
                found[key] = value
    return found
