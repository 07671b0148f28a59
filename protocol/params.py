"""Which value of a parameter holds: server default < profile < thread < the command's own (SET-1, PROTOCOL §16).

One function for the decider, the agent and the edge, so that what a client is told is what is used. A profile may set
only optional keys: a thread cannot tell "unset" from its default for the others, and a person's `false` must win.
"""

from operator import attrgetter
from typing import Any, Literal, NamedTuple, TypeAlias

from protocol.messages import JsonObject
from protocol.state import ChatState
from protocol.thread import ALWAYS_PRESENT, Thread, ThreadPatch

__all__ = ["MAX_ROUNDS", "PARAMS", "SAMPLERS", "SERVER_DEFAULTS", "Effective", "Layer", "all_set", "effective"]

Layer: TypeAlias = Literal["server", "profile", "thread", "command"]

MAX_ROUNDS = 20
"""Model calls of one run that may use tools, unless thread or profile says otherwise (LOOP-2)."""

SERVER_DEFAULTS: JsonObject = {
    "history_tools": "full",
    "max_history_messages": 0,
    "max_rounds": MAX_ROUNDS,
    "merge_queued": True,
    "on_abort": "keep",
    "on_deny": "continue",
    "on_limit": "stop",
    "on_owner_loss": "auto",
    "reasoning": "stream",
}
"""Of optional keys; the others have theirs in `Thread`, and None leaves the choice to the model's provider."""

PARAMS: tuple[str, ...] = ThreadPatch.__struct_fields__

SAMPLERS: tuple[str, ...] = ("top_k", "min_p", "repetition_penalty", "seed", "stop")
"""Parameters that only some providers take: `/v1/caps` says which of them each model has (PROTOCOL §13, §16)."""

_UNSET = Thread(id="-")
_values_of = attrgetter(*PARAMS)


class Effective(NamedTuple):
    value: Any  # Any: each key has the type of its field in ThreadPatch
    layer: Layer


def effective(state: ChatState, key: str, profile_params: JsonObject) -> Effective:
    """The value of `key` for the open run, or for the next one, and the layer it comes from."""
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


def all_set(state: ChatState, profile_params: JsonObject) -> dict[str, Effective]:
    """Every parameter that somebody has set, in the order of `PARAMS`. Asked at every model call, when most are not:
    whose value is None in all three places is not looked at twice."""
    run = state.private.run
    asked = {} if run is None else run.params
    found: dict[str, Effective] = {}
    for key, own in zip(PARAMS, _values_of(state.thread), strict=True):
        if own is not None or key in asked or key in profile_params or key == "model":
            value = effective(state, key, profile_params)
            if value.layer != "server":
                found[key] = value
    return found
