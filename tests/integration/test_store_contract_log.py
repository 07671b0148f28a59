"""The contract of every store, 3: the log. Tests appends, loads, checkpoints and trims. Tests of traps (DISPATCH §9)
have the trap's number in their name."""

import pytest

from tests.integration.store_fixtures import CHAT, command, entry, owned
from threadcast.store.ports import Appended, Fenced, Store
from threadcast_protocol.wire.ids import Head

pytestmark = pytest.mark.anyio


# append


async def test_append_stores_the_texts_as_they_came(store: Store) -> None:
    taken = await owned(store)
    request = entry(taken.head, facts=b'[{"x":1}]', acks=b'[["r1",true,true]]', version=3)
    assert await store.append(request) is Appended.OK
    stored = (await store.read_log(CHAT))[-1]
    assert (stored.head, stored.before, stored.position, stored.version) == (request.head, taken.head, 1, 3)
    assert (stored.events, stored.facts, stored.acks) == (request.events, request.facts, request.acks)
    assert stored.fence is None
    assert stored == await store.read_entry(CHAT, stored.entry_id)
    assert await store.heads([CHAT, "unknown"]) == [request.head, ""]


async def test_trap_16_repeated_append_is_dup_and_has_one_effect(store: Store) -> None:
    taken = await owned(store)
    (waiting,) = await store.read_inbox(CHAT, 10)
    request = entry(taken.head, consumed=((waiting.inbox_id, "r1"),))
    assert [await store.append(request), await store.append(request)] == [Appended.OK, Appended.DUP]
    assert len(await store.read_log(CHAT)) == 2
    assert await store.read_inbox(CHAT, 10) == []


@pytest.mark.row("SES-8")
async def test_append_onto_another_head_is_fenced(store: Store) -> None:
    taken = await owned(store)
    await store.append(entry(taken.head, digest="00000000000000aa"))
    with pytest.raises(Fenced):
        await store.append(entry(taken.head, digest="00000000000000bb"))


async def test_trap_3_same_id_with_another_digest_is_another_head(store: Store) -> None:
    taken = await owned(store)
    entry_id, _, position = taken.head.split(" ")
    with pytest.raises(Fenced):
        await store.append(entry(f"{entry_id} 0123456789abcdef {position}"))


async def test_trap_4_append_must_find_every_command_it_consumes(store: Store) -> None:
    taken = await owned(store)
    (waiting,) = await store.read_inbox(CHAT, 10)
    for missing in (("1-1", "r1"), (waiting.inbox_id, "another")):
        with pytest.raises(Fenced):
            await store.append(entry(taken.head, consumed=((waiting.inbox_id, "r1"), missing)))
    assert await store.heads([CHAT]) == [taken.head]
    assert await store.read_inbox(CHAT, 10) == [waiting]


async def test_commands_may_be_consumed_out_of_order(store: Store) -> None:
    taken = await owned(store)
    await store.post(command("r2"))
    first, second = await store.read_inbox(CHAT, 10)
    await store.append(entry(taken.head, consumed=((second.inbox_id, "r2"),)))
    assert await store.read_inbox(CHAT, 10) == [first]


async def test_trap_9_append_never_makes_a_chat(store: Store) -> None:
    with pytest.raises(Fenced):
        await store.append(entry("1-1 00000000000000aa 0"))
    assert (await store.load(CHAT)).head == ""
    assert await store.meta(CHAT) is None


async def test_trap_14_checkpoint_and_entries_carry_their_own_versions(store: Store) -> None:
    taken = await owned(store)
    first = entry(taken.head, version=2, checkpoint=b"the state", checkpoint_version=5)
    second = entry(first.head, version=3)
    await store.append(first)
    await store.append(second)
    loaded = await store.load(CHAT)
    assert loaded.checkpoint == (first.head, 5, b"the state")
    assert [(each.head, each.version) for each in loaded.entries] == [(second.head, 3)]
    assert loaded.head == second.head


async def test_later_checkpoint_replaces_the_earlier(store: Store) -> None:
    taken = await owned(store)
    first = entry(taken.head, checkpoint=b"one")
    large = bytes(range(256)) * 4_096  # a megabyte, which is compressed in a thread
    second = entry(first.head, checkpoint=large)
    await store.append(first)
    await store.append(second)
    assert (await store.load(CHAT)).checkpoint == (second.head, 1, large)


async def test_trim_drops_what_the_checkpoint_holds(store: Store) -> None:
    taken = await owned(store)
    first = entry(taken.head)
    second = entry(first.head, checkpoint=b"s", trim=Head.parse(first.head).entry_id)
    await store.append(first)
    await store.append(second)
    assert [each.head for each in await store.read_log(CHAT)] == [first.head, second.head]
    assert await store.read_entry(CHAT, Head.parse(taken.head).entry_id) is None


async def test_trap_12_trim_never_goes_beyond_the_checkpoint(store: Store) -> None:
    taken = await owned(store)
    first = entry(taken.head, checkpoint=b"s")
    second = entry(first.head)
    third = entry(second.head)
    fourth = entry(third.head, trim=Head.parse(third.head).entry_id)
    for request in (first, second, third, fourth):
        await store.append(request)
    assert [each.head for each in (await store.load(CHAT)).entries] == [second.head, third.head, fourth.head]
    assert await store.read_entry(CHAT, Head.parse(taken.head).entry_id) is None, "the checkpoint bounds the trim"


async def test_without_a_checkpoint_nothing_is_trimmed(store: Store) -> None:
    taken = await owned(store)
    first = entry(taken.head)
    await store.append(first)
    await store.append(entry(first.head, trim=Head.parse(first.head).entry_id))
    assert len((await store.load(CHAT)).entries) == 3


# load


async def test_load_of_an_unknown_chat_is_empty(store: Store) -> None:
    loaded = await store.load(CHAT)
    assert (loaded.checkpoint, loaded.entries, loaded.head) == (None, [], "")


async def test_trap_13_every_entry_says_what_came_before_it(store: Store) -> None:
    taken = await owned(store)
    head = taken.head
    for n in range(5):
        await store.append(request := entry(head, digest=f"{n:016x}"))
        head = request.head
    entries = (await store.load(CHAT)).entries
    assert [each.before for each in entries] == ["", *(each.head for each in entries[:-1])]
    assert entries[-1].head == head


async def test_read_log_ends_where_it_is_told(store: Store) -> None:
    taken = await owned(store)
    await store.append(request := entry(taken.head))
    await store.append(entry(request.head))
    through = Head.parse(request.head).entry_id
    assert [each.head for each in await store.read_log(CHAT, through)] == [taken.head, request.head]
