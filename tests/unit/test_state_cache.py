"""The cache of folded states: a state is used only at exactly its head string, since after a rollback an id may occur
again. The limit of the cache counts the memory that Python takes."""

import gc
import tracemalloc

import pytest
from msgspec.structs import replace

from threadcast.actor.checkpoint_policy import CheckpointPolicy
from threadcast.actor.state_cache import StateCache
from threadcast.agent_loop.history.kept_view import KeptView
from threadcast.agent_loop.history.view import view_of
from threadcast.chat.entry_codec import decode_state, encode_state
from threadcast.chat.owner_state import OwnerState, empty_owner_state
from threadcast.providers.unchanged import Encoded
from threadcast_protocol.wire.ids import EntryId
from threadcast_protocol.wire.messages import Message

HERE = "1700000000000-2 0123456789abcdef 7"
TWIN = "1700000000000-2 fedcba9876543210 7"
"""The same id and position after another history, as after a failover to a server whose clock was behind."""


def test_a_state_of_the_same_id_and_another_history_is_not_used() -> None:
    cache = StateCache()
    cache.put(replace(empty_owner_state("c1"), head=HERE, position=7), CheckpointPolicy())
    assert cache.pop("c1", TWIN) is None
    assert cache.pop("c1", HERE) is not None


def test_a_state_is_taken_out_once_and_for_its_own_chat() -> None:
    cache = StateCache()
    cache.put(replace(empty_owner_state("c1"), head=HERE, position=7), CheckpointPolicy())
    assert cache.pop("c2", HERE) is None
    assert cache.pop("c1", HERE) is not None
    assert cache.pop("c1", HERE) is None


def chat(messages: int, text: str, chat_id: str = "c1") -> OwnerState:
    nodes = {
        f"msg_{number:020x}": Message(
            message_id=f"msg_{number:020x}",
            role="user",
            content=f"{number} {text}",
            client_request_id=f"{number:036}",
            parent_id=f"msg_{number - 1:020x}" if number else None,
            sibling_ids=[f"msg_{number:020x}"],
            created_at=1_700_000_000_000 + number,
        )
        for number in range(messages)
    }
    return replace(empty_owner_state(chat_id), head=HERE, position=7, nodes=nodes, path=tuple(nodes))


@pytest.mark.parametrize(
    ("messages", "text"), [(2, "short"), (20, "x" * 1_000), (200, "\u0436" * 200), (500, "x"), (2, "x" * 500_000)]
)
def test_the_size_of_a_cached_state_is_what_python_holds_within_a_fifth(messages: int, text: str) -> None:
    """`tracemalloc` counts what decoding allocates, as when a worker folds the chat."""
    data = encode_state(chat(messages, text))
    count = max(2, 100 // messages)
    gc.collect()
    tracemalloc.start()
    states = [decode_state(data) for _ in range(count)]
    policies = [CheckpointPolicy(checkpoint_bytes=len(data)) for _ in states]
    for policy in policies:
        for n in range(40):
            policy.add(EntryId(1_700_000_000_000, n + 1_000), 1, 0)
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    cache = StateCache()
    for number, (state, policy) in enumerate(zip(states, policies, strict=True)):
        cache.put(replace(state, chat_id=f"c{number}"), policy)
    assert 0.8 < cache.size_bytes / held < 1.25


def test_the_oldest_states_leave_when_the_cache_is_full() -> None:
    cache = StateCache(max_bytes=100_000)
    for number in range(1_000):
        cache.put(chat(5, "text", f"c{number}"), CheckpointPolicy(checkpoint_bytes=3_000))
        cache.put(chat(5, "text", f"c{number}"), CheckpointPolicy(checkpoint_bytes=3_000))
        assert cache.size_bytes <= 100_000
    assert cache.pop("c0", HERE) is None
    kept = [number for number in range(1_000) if cache.pop(f"c{number}", HERE) is not None]
    assert kept == [*range(1_000 - len(kept), 1_000)] and len(kept) == 7
    assert cache.size_bytes == 0
    cache.put(chat(5, "text"), CheckpointPolicy(checkpoint_bytes=100_000))
    assert cache.size_bytes == 0, "a state that fills the cache is not kept"


def test_a_kept_view_counts_and_leaves_before_its_state() -> None:
    state, policy = chat(300, "text"), CheckpointPolicy(checkpoint_bytes=3_000)
    kept = KeptView()
    view = view_of(state, {}, kept)
    assert view.unchanged is not None
    view.unchanged.fold("json", view.messages, Encoded(), lambda encoded, _: encoded.plus(b"x" * 50_000))
    assert kept.size_bytes > 50_000
    alone, both = StateCache(), StateCache()
    alone.put(state, policy)
    both.put(state, policy, kept)
    assert both.size_bytes == alone.size_bytes + kept.size_bytes
    found = both.pop("c1", HERE)
    assert found is not None and found.kept_view is kept and both.size_bytes == 0
    small = StateCache(max_bytes=alone.size_bytes + 50_000)
    small.put(state, policy, kept)
    found = small.pop("c1", HERE)
    assert found is not None and found.kept_view.size_bytes == 0
