"""The slots of one worker: the slots are limited for each principal, go to the longest-waiting run, and are never
leaked."""

import anyio
import pytest

from tests.unit.faulty_store import DEADLINE_SECONDS
from threadcast.actor.run_slots import SUSPENDED_MAX_RATIO, Rank, RunSlots

pytestmark = pytest.mark.anyio

ROOT, CHILD = Rank(0, 0), Rank(-1, 0)
LATER_MS = 60_000


class Begun:
    """The slots of a worker with room, and the chats that the slots told it to begin."""

    def __init__(self, count: int) -> None:
        self.slots = RunSlots(count)
        self.chats: list[str] = []
        self.slots.begin = self.chats.append
        self.slots.may_begin = lambda: True


async def granted(slots: RunSlots, chat_id: str, done: list[str]) -> None:
    await slots.resume(chat_id)
    done.append(chat_id)


def test_each_principal_has_so_many_slots() -> None:
    slots = Begun(2).slots
    assert [slots.take(chat, "ann", ROOT) for chat in ("a", "b", "c")] == [True, True, False]
    assert slots.take("d", "bob", ROOT)
    assert slots.take("a", "ann", ROOT), "a chat that has a slot keeps it"
    slots.free("a")
    slots.free("a")
    assert slots.take("c", "ann", ROOT)
    assert not slots.take("e", "ann", ROOT)


def test_a_free_slot_goes_to_deep_sub_chats_and_then_to_the_oldest_run() -> None:
    begun = Begun(1)
    begun.slots.take("works", "ann", ROOT)
    for chat, rank in (("new", Rank(0, 9)), ("old", Rank(0, 1)), ("deep", Rank(-2, 8)), ("child", Rank(-1, 2))):
        begun.slots.wait(chat, "ann", rank, LATER_MS)
    assert begun.chats == []
    for chat in ("works", "deep", "child", "old"):
        begun.slots.free(chat)
    assert begun.chats == ["deep", "child", "old", "new"]
    assert not begun.slots.is_free("other", "ann", ROOT)


def test_a_chat_that_waits_while_a_slot_is_free_begins_at_once() -> None:
    begun = Begun(1)
    begun.slots.wait("a", "ann", ROOT, LATER_MS)
    assert begun.chats == ["a"]


def test_a_chat_that_has_an_owner_again_is_not_begun() -> None:
    begun = Begun(1)
    begun.slots.take("works", "ann", ROOT)
    begun.slots.wait("a", "ann", ROOT, LATER_MS)
    begun.slots.wait("late", "ann", Rank(0, 5), -1)
    begun.slots.forget("a", "ann")
    begun.slots.look()  # the deadline of `late` has passed, so any worker may claim its chat
    begun.slots.free("works")
    assert begun.chats == []
    assert begun.slots.take("b", "ann", ROOT)


def test_a_worker_without_room_begins_nothing_until_it_has_room() -> None:
    begun = Begun(1)
    begun.slots.may_begin = lambda: False
    begun.slots.wait("a", "ann", ROOT, LATER_MS)
    assert begun.chats == []
    begun.slots.may_begin = lambda: True
    begun.slots.look()
    assert begun.chats == ["a"]


async def test_a_parent_leaves_its_slot_to_its_child_and_gets_it_back_before_others() -> None:
    begun, done = Begun(1), list[str]()
    begun.slots.take("parent", "ann", ROOT)
    begun.slots.suspend("parent")
    assert begun.slots.take("child", "ann", CHILD)
    begun.slots.wait("other", "ann", ROOT, LATER_MS)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(granted, begun.slots, "parent", done)
        await anyio.wait_all_tasks_blocked()
        assert done == []
        begun.slots.free("child")
        with anyio.fail_after(DEADLINE_SECONDS):
            await anyio.wait_all_tasks_blocked()
    assert (done, begun.chats) == (["parent"], [])
    begun.slots.free("parent")
    assert begun.chats == ["other"]


async def test_a_parent_that_is_stopped_while_it_waits_for_its_slot_leaks_nothing() -> None:
    begun = Begun(1)
    begun.slots.take("parent", "ann", ROOT)
    begun.slots.suspend("parent")
    begun.slots.take("child", "ann", CHILD)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(granted, begun.slots, "parent", [])
        await anyio.wait_all_tasks_blocked()
        tasks.cancel_scope.cancel()
    begun.slots.free("parent")
    begun.slots.free("child")
    assert begun.slots.take("other", "ann", ROOT)
    begun.slots.suspend("gone")  # a tool that does not end after its run was stopped
    await begun.slots.resume("gone")


def test_parents_that_wait_are_bounded_and_their_children_have_room() -> None:
    slots = Begun(1).slots
    for number in range(SUSPENDED_MAX_RATIO):
        assert slots.take(f"root{number}", "ann", ROOT)
        slots.suspend(f"root{number}")
    assert not slots.take("root", "ann", ROOT)
    for depth in (1, 2, 3):
        for number in range(SUSPENDED_MAX_RATIO):
            assert slots.take(f"{depth}-{number}", "ann", Rank(-depth, 0))
            slots.suspend(f"{depth}-{number}")
        assert not slots.take("more", "ann", Rank(-depth, 0))
    assert slots.take("deepest", "ann", Rank(-4, 0))


def test_nothing_is_kept_of_a_principal_whose_runs_have_ended() -> None:
    begun = Begun(1)
    begun.slots.take("a", "ann", ROOT)
    begun.slots.wait("b", "ann", ROOT, LATER_MS)
    for chat in ("a", "b"):
        begun.slots.free(chat)
    assert (begun.slots._principals, begun.slots._principal_of, begun.slots._waiting_count) == ({}, {}, 0)


@pytest.mark.parametrize("rank", [Rank(0, 0), Rank(-4, 1_800_000_000_000)])
def test_a_rank_is_the_same_after_the_store(rank: Rank) -> None:
    assert Rank.parse(str(rank)) == rank
