"""Caches the folded states of chats that a worker has released, within a number of bytes."""

from collections import OrderedDict
from typing import NamedTuple

from threadcast.actor.checkpoint_policy import CheckpointPolicy
from threadcast.agent_loop.history.kept_view import KeptView
from threadcast.chat.owner_state import OwnerState

__all__ = ["Cached", "StateCache"]

CACHE_MAX_BYTES = 256_000_000
"""The maximum memory that the folded states of released chats take in a worker (DESIGN §2). The process needs some 1.6
times as much memory for these states, because short-lived objects leave holes between them (`bench/plateau.py`)."""

STATE_BYTES, MESSAGE_BYTES = 3_800, 1_400
"""The bytes of Python's memory that a folded state takes beyond its JSON: for the state, and for each message. Measured
with tracemalloc: a state that was decoded takes 2.4 kB, and 1.25 to 1.45 kB for each message
(`tests/unit/test_state_cache.py`); a state that a worker has folded from a run takes 1.4 kB more."""


class Cached(NamedTuple):
    """A folded state, the checkpoint policy of its log, and the view of its messages that was made for the model."""

    state: OwnerState
    checkpoint_policy: CheckpointPolicy
    kept_view: KeptView


class StateCache:
    """A cache of folded states by chat and head. A state is valid only while its head is the head of the chat's log.
    The least recently used states are removed first."""

    def __init__(self, max_bytes: int = CACHE_MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._states: OrderedDict[tuple[str, str], tuple[Cached, int]] = OrderedDict()
        self._bytes = 0

    @property
    def size_bytes(self) -> int:
        """The memory that the cached states take, by their estimates."""
        return self._bytes

    def put(self, state: OwnerState, checkpoint_policy: CheckpointPolicy, kept_view: KeptView | None = None) -> None:
        """Keep `state` with the checkpoint policy of its log, and with its view if there is room for both."""
        size = checkpoint_policy.state_bytes + STATE_BYTES + MESSAGE_BYTES * len(state.nodes)
        kept_view = kept_view or KeptView()
        if size + kept_view.size_bytes > self._max_bytes:
            kept_view = KeptView()
        size += kept_view.size_bytes
        if size > self._max_bytes:
            return
        self.pop(state.chat_id, state.head)
        self._states[state.chat_id, state.head] = Cached(state, checkpoint_policy, kept_view), size
        self._bytes += size
        while self._bytes > self._max_bytes:
            _, (_, oldest) = self._states.popitem(last=False)
            self._bytes -= oldest

    def peek(self, chat_id: str, head: str) -> Cached | None:
        """Return the state with this head, and leave it in the cache; None if the cache has no such state."""
        found = self._states.get((chat_id, head))
        return None if found is None else found[0]

    def pop(self, chat_id: str, head: str) -> Cached | None:
        """Remove and return the state with this head; None if the cache has no such state."""
        found = self._states.pop((chat_id, head), None)
        if found is None:
            return None
        cached, size = found
        self._bytes -= size
        return cached
