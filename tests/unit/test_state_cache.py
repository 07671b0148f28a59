"""The cache of folded states: a state is used at exactly its head string, since after a rollback an id comes again."""

from msgspec.structs import replace

from threadcast.actor.checkpoint_policy import CheckpointPolicy
from threadcast.actor.worker_context import StateCache
from threadcast.chat.owner_state import empty_owner_state

HERE = "1700000000000-2 0123456789abcdef 7"
TWIN = "1700000000000-2 fedcba9876543210 7"
"""The same id and position with another history before it, as after a failover whose clock stood behind."""


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
