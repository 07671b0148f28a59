"""Large copies are written in parts: if a worker dies between two parts, the chat still gets the whole copy once
(CMD-12)."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from hashlib import sha256
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.actor_harness import CHAT, Harness, say
from tests.unit.pure_chat import PureChat
from threadcast.actor import copy_parts, intake
from threadcast.actor.copy_parts import builder_of
from threadcast.actor.copy_parts import copy_parts as parts_of
from threadcast.actor.end import End
from threadcast.chat.copies import drop_copy, has_unfinished_copy
from threadcast.chat.decider import decide
from threadcast.chat.entry_builder import EntryBuilder
from threadcast.chat.facts import ImportGoesOn, ResultWithheld
from threadcast.chat.import_files import PART_MAX_BYTES
from threadcast.chat.internal_commands import StoredCommand
from threadcast.chat.owner_state import OwnerState, empty_owner_state
from threadcast.store.ports import Appended, AppendRequest, BlobOutcome, BlobPut
from threadcast_protocol.fold.snapshot import snapshot_of
from threadcast_protocol.framing.codec import decode_events, encode
from threadcast_protocol.wire.blobs import PRIVATE_MIME, Blob
from threadcast_protocol.wire.commands import BranchFromChat, Command, RestoreMessages, encode_command
from threadcast_protocol.wire.events import Ack, MessageAdded
from threadcast_protocol.wire.principal import LOCAL

AT_ONCE = 3
"""The messages of a part in these tests, in place of 500."""

PARTS = 4
"""The parts of a copy of ten messages."""


@pytest.fixture(autouse=True)
def parts_are_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copy_parts, "PART_MAX_MESSAGES", AT_ONCE)


def restore(messages: int = 10) -> RestoreMessages:
    texts = [{"role": "assistant" if n % 2 else "user", "content": f"text {n}"} for n in range(messages)]
    return RestoreMessages(client_request_id="r", messages=texts)


TEXTS = [("assistant" if number % 2 else "user", f"text {number}") for number in range(10)]


async def copying(harness: Harness, kind: str) -> Command:
    """Return a command that copies ten messages into the chat, from its client or from another chat."""
    if kind == "restore":
        return restore()
    await harness.own("w0", restore(), chat_id="source")
    last = (await harness.state("source")).path[-1]
    return BranchFromChat(client_request_id="r", source_chat_id="source", up_to_message_id=last)


@asynccontextmanager
async def taken_over(harness: Harness, monkeypatch: pytest.MonkeyPatch, before: int) -> AsyncIterator[None]:
    """Let another worker take the chat just before the append of this number, counted from 1."""
    calls, append = count(1), harness.store.append

    async def fenced(request: AppendRequest) -> Appended:
        if request.chat_id == CHAT and next(calls) == before:
            await harness.claim("other")
            await harness.store.take(CHAT, "other", "takeover")
        return await append(request)

    with monkeypatch.context() as patch:
        patch.setattr(harness.store, "append", fenced)
        yield


@pytest.mark.anyio
@pytest.mark.row("CMD-12")
@pytest.mark.parametrize("kind", ["restore", "branch"])
async def test_a_large_copy_becomes_small_entries_and_takes_effect_once(harness: Harness, kind: str) -> None:
    command = await copying(harness, kind)
    async with harness.watching() as reader:
        assert await harness.own("w1", command) is End.RELEASED
        assert await harness.texts() == TEXTS
        final = await harness.snapshot()
        await reader.until(lambda w: w.snapshot == final, 10)
    entries = [decode_events(entry.events) for entry in await harness.store.read_log(CHAT)]
    added = [sum(isinstance(event, MessageAdded) for event in events) for events in entries if events]
    assert added == [3, 3, 3, 1]
    assert [isinstance(event, Ack) for event in entries[-1]].count(True) == 1, "nobody is told before it is complete"
    assert await harness.outcomes("r") == [(True, True)]
    assert await harness.store.read_inbox(CHAT, 1) == []
    assert (await harness.state()).private.importing is None
    assert await harness.folded_log() == await harness.state()


@pytest.mark.anyio
@pytest.mark.row("CMD-12")
@pytest.mark.parametrize("kind", ["restore", "branch"])
@pytest.mark.parametrize("before", range(1, PARTS + 1))
async def test_a_copy_whose_worker_dies_between_two_parts_begins_anew(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, kind: str, before: int
) -> None:
    command = await copying(harness, kind)
    async with harness.watching() as reader:
        async with taken_over(harness, monkeypatch, before):
            assert await harness.own("w1", command) is End.LOST
        state = await harness.state()
        assert (state.private.importing is not None) == (before > 1)
        assert len(await harness.store.read_inbox(CHAT, 2)) == 1, "the command waits"
        assert await harness.own("w2") is End.RELEASED
        assert await harness.texts() == TEXTS
        final = await harness.snapshot()
        await reader.until(lambda w: w.snapshot == final, 10)
    state = await harness.state()
    assert len(state.nodes) == len(TEXTS), "nothing of the first try is left"
    assert await harness.outcomes("r") == [(True, True)]
    assert state.private.importing is None
    assert await harness.own("w3", say("go on")) is End.RELEASED
    assert (await harness.texts())[len(TEXTS) :] == [("user", "go on"), ("assistant", "You said: go on")]


@pytest.mark.anyio
async def test_a_copy_that_is_given_up_leaves_an_empty_chat_that_takes_commands(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with taken_over(harness, monkeypatch, 3):
        assert await harness.own("w1", restore()) is End.LOST
    for worker in ("w2", "w3"):  # these die before they begin
        await harness.claim(worker)
        await harness.store.take(CHAT, worker, "takeover")
    assert await harness.own("w4") is End.RELEASED
    assert await harness.refusals() == {"r": "poison"}
    assert await harness.texts() == []
    await harness.own("w5", say("hello"))
    assert await harness.texts() == [("user", "hello"), ("assistant", "You said: hello")]


@pytest.mark.anyio
async def test_a_large_command_is_read_from_its_blob_and_refused_if_the_blob_is_gone(harness: Harness) -> None:
    command = restore()
    body = encode_command(command)
    blob = Blob(sha256(body).hexdigest(), PRIVATE_MIME, body)
    put = BlobPut(chat_id=CHAT, owner=LOCAL.id, blob=blob, ttl_seconds=60)
    assert await harness.store.put_blob(put) is BlobOutcome.KEPT
    for name, hash in (("r", blob.hash), ("gone", "0" * 64)):
        await harness.post_body(name, encode_command(StoredCommand(client_request_id=name, blob=hash)))
    await harness.own("w1")
    assert await harness.texts() == TEXTS
    assert await harness.outcomes("r") == [(True, True)]
    assert await harness.outcomes("gone") == [(False, True)]
    assert await harness.store.get_blob(CHAT, LOCAL.id, blob.hash) is None


@pytest.mark.anyio
async def test_the_letter_of_a_large_command_has_the_beginning_of_its_body(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(intake, "DEAD_LETTER_MAX_BYTES", 100)
    body = encode_command(restore())
    put = BlobPut(chat_id=CHAT, owner=LOCAL.id, blob=Blob("1" * 64, PRIVATE_MIME, body), ttl_seconds=60)
    assert await harness.store.put_blob(put) is BlobOutcome.KEPT
    await harness.post_body("r", encode_command(StoredCommand(client_request_id="r", blob="1" * 64)))
    for worker in ("w1", "w2", "w3", "w4"):
        await harness.claim(worker)
        await harness.store.take(CHAT, worker, "takeover")
    await harness.own("w5")
    ((_, letter, reason),) = harness.store.dead
    assert (letter.body, reason) == (body[:100], "poison")
    assert await harness.refusals() == {"r": "poison"}


@given(messages=st.integers(0, 30), at_once=st.integers(1, 9), died_after=st.integers(0, 9))
def test_the_parts_fold_to_what_the_whole_entry_folds_to(messages: int, at_once: int, died_after: int) -> None:
    """Also after a worker that has died after some of the parts."""
    ids = count(1)

    def carried_out(state: OwnerState) -> EntryBuilder:
        builder = EntryBuilder(state, 1, lambda prefix: f"{prefix}_{next(ids)}")
        decide(builder, restore(messages), LOCAL)
        builder.note(ResultWithheld(message_id=f"msg_{messages}", content="withheld"))
        return builder

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(copy_parts, "PART_MAX_MESSAGES", at_once)
        begun = empty_owner_state(CHAT)
        first = carried_out(begun)
        for part in parts_of(first)[: min(died_after, len(parts_of(first)) - 1)]:
            begun = builder_of(part, begun, first).state
        if has_unfinished_copy(begun):
            dropped = EntryBuilder(begun, 1, lambda prefix: prefix)
            drop_copy(dropped)
            begun = dropped.state
        assert not begun.nodes and not begun.private.withheld and begun.private.importing is None
        entry, state = carried_out(begun), begun
        parts = parts_of(entry)
        for number, part in enumerate(parts, 1):
            state = builder_of(part, state, entry).state
            assert (state.private.importing is None) == (number == len(parts))
            assert sum(isinstance(event, MessageAdded) for event in part.events) <= at_once
            assert any(isinstance(event, Ack) for event in part.events) == (number == len(parts))
    assert encode(snapshot_of(state)) == encode(snapshot_of(entry.state))
    assert state == entry.state


def test_a_part_holds_no_more_bytes_than_a_part_of_an_import(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    long = [{"role": "user", "content": "x" * 200_000} for _ in range(7)]
    builder = EntryBuilder(empty_owner_state(CHAT), 1, PureChat().new_id)
    decide(builder, RestoreMessages(client_request_id="r", messages=long), LOCAL)
    parts = parts_of(builder)
    assert [sum(isinstance(event, MessageAdded) for event in part.events) for part in parts] == [2, 2, 2, 1]
    assert all(len(encode(part.events)) <= PART_MAX_BYTES for part in parts)
    assert [fact.next_part for part in parts for fact in part.facts if isinstance(fact, ImportGoesOn)] == [1, 2, 3, 0]


@pytest.mark.anyio
async def test_a_copy_whose_command_the_store_has_lost_does_not_block_the_chat(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lossy failover may lose a command that its worker still has in memory."""
    async with taken_over(harness, monkeypatch, 3):
        await harness.own("w1", restore())
    harness.store._chats[CHAT].inbox.clear()
    assert (await harness.state()).private.importing is not None
    assert await harness.own("w2") is End.RELEASED
    assert not (await harness.state()).nodes and harness.store._chats[CHAT].expires_at_ms is not None
    await harness.own("w3", say("hello"))
    assert await harness.texts() == [("user", "hello"), ("assistant", "You said: hello")]


@pytest.mark.anyio
async def test_a_branch_that_is_refused_after_its_worker_has_died_leaves_nothing(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = await copying(harness, "branch")
    async with taken_over(harness, monkeypatch, PARTS):
        await harness.own("w1", command)
    assert await harness.store.delete("source", LOCAL.id, "n")
    await harness.own("w2")
    state = await harness.state()
    assert await harness.outcomes("r") == [(False, True)]
    assert not state.nodes and state.thread.parent_id is None and state.thread.forked_from is None
    assert [event.accepted for event in await harness.events() if isinstance(event, Ack)] == [False]


@pytest.mark.anyio
async def test_no_branch_is_made_of_a_copy_that_is_not_complete(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with taken_over(harness, monkeypatch, 3):
        await harness.own("w1", restore())
    half = (await harness.state()).path[-1]
    branch = BranchFromChat(client_request_id="b", source_chat_id=CHAT, up_to_message_id=half)
    await harness.own("w2", branch, chat_id="third")
    assert await harness.refusals("third") == {"b": "conflict"}
    assert await harness.texts("third") == []


@pytest.mark.anyio
@pytest.mark.parametrize("deaths", [1, 2])
async def test_what_was_withheld_goes_with_a_copy_that_begins_anew_and_deaths_count(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, deaths: int
) -> None:
    def withhold(builder: EntryBuilder) -> None:
        for key in builder.state.path:
            builder.note(ResultWithheld(message_id=key, content=f"secret of {key}"))

    command = await copying(harness, "branch")
    await harness.post(say("later"), chat_id="source")
    await harness.claim("w0", "source")
    await harness.store.take("source", "w0", "wake")
    writer = await harness.writer_at_head("w0", "source")
    await writer.commit(withhold)
    for number in range(deaths):
        async with taken_over(harness, monkeypatch, 6):  # parts with facts follow those with messages
            await harness.own(f"w{number}", *[command][number:])
    assert (await harness.state()).private.attempts == 2 * deaths - 1, (
        "each death counts, also that of the other worker"
    )
    await harness.own("w3")
    state = await harness.state()
    assert state.private.withheld.keys() == state.nodes.keys()
    assert await harness.texts() == (TEXTS if deaths == 1 else [])
    assert await harness.refusals() == ({} if deaths == 1 else {"r": "poison"})
