"""A log that is longer than a page is read to its end, and again from the start if the log is trimmed meanwhile; a part
of a log is never folded."""

from collections.abc import Callable

import anyio
import pytest

from tests.unit.actor_harness import CHAT, Harness, say
from threadcast.actor.writer import Writer
from threadcast.chat.entry_builder import EntryBuilder
from threadcast.store.bounds import LOG_PAGE_BYTES
from threadcast.store.history import state_at
from threadcast.store.load import READS_MAX, Folded, extent_of, load_folded
from threadcast_protocol.fold.reducer import Gap
from threadcast_protocol.wire.errors import Unavailable
from threadcast_protocol.wire.events import ThreadUpdated
from threadcast_protocol.wire.ids import Head

pytestmark = pytest.mark.anyio

PAGE_BYTES = 15_000
"""Three entries of a long log."""


@pytest.fixture
def harness() -> Harness:
    harness = Harness()
    harness.store.page_bytes = PAGE_BYTES
    return harness


def weight(size_bytes: int) -> Callable[[EntryBuilder], None]:
    return lambda builder: builder.say(ThreadUpdated(context={"x": "y" * size_bytes}))


async def lengthen(writer: Writer, entries: int = 9) -> None:
    """Add entries of 5 kB, too few for a checkpoint to be due."""
    for number in range(entries):
        await writer.commit(weight(4_900 + number))


async def long_log(harness: Harness) -> Writer:
    writer = await harness.writer()
    await lengthen(writer)
    assert not (await harness.store.load(CHAT)).is_whole
    return writer


async def trim(harness: Harness, writer: Writer) -> None:
    """Write until a checkpoint is written and all earlier entries are trimmed."""
    last = Head.parse(writer.state.head).entry_id
    for _ in range(9):
        await writer.commit(weight(600_000))
        if (trimmed := harness.store.requests[-1].trim) is not None and trimmed > last:
            return
    raise AssertionError("nothing was trimmed")


async def test_a_chat_of_ordinary_size_is_loaded_in_one_call() -> None:
    harness = Harness()
    writer = await harness.writer()
    await lengthen(writer)
    harness.store.calls.clear()
    state, _ = await load_folded(harness.store, CHAT, with_facts=True)
    assert state == writer.state
    assert (harness.store.calls["load"], harness.store.calls["read_log"]) == (1, 0)


async def test_all_pages_together_are_the_chat_and_its_size(harness: Harness) -> None:
    writer = await long_log(harness)
    state, extent = await load_folded(harness.store, CHAT, with_facts=True)
    assert state == writer.state
    assert harness.store.calls["read_log"] >= 2
    harness.store.page_bytes = LOG_PAGE_BYTES
    assert extent == extent_of(await harness.store.load(CHAT))


async def test_what_is_written_meanwhile_does_not_matter(harness: Harness) -> None:
    writer = await long_log(harness)
    head = writer.state.head
    held = harness.store.hold("read_log")
    loading = _Loading(harness)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(loading.run)
        await held.entered()
        await writer.commit(weight(100))
        held.let_go()
    assert loading.folded is not None and loading.folded.state.head == head


async def test_a_trim_between_two_pages_makes_it_begin_again(harness: Harness) -> None:
    writer = await long_log(harness)
    held = harness.store.hold("read_log")
    loading = _Loading(harness)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(loading.run)
        await held.entered()
        loads = harness.store.calls["load"]
        await trim(harness, writer)
        held.let_go()
    assert loading.folded is not None and loading.folded.state == writer.state
    assert harness.store.calls["load"] == loads + 1


async def test_a_page_that_is_not_answered_is_asked_for_again(harness: Harness) -> None:
    writer = await long_log(harness)
    harness.store.calls.clear()
    harness.store.fail("read_log", "refused", "lost reply")
    state, _ = await load_folded(harness.store, CHAT, with_facts=True)
    assert state == writer.state
    assert harness.store.calls["load"] == 1


async def test_an_entry_that_is_missing_between_two_pages_is_a_hole(harness: Harness) -> None:
    await long_log(harness)
    first = await harness.store.load(CHAT)
    harness.store.lose_entry(CHAT, len(first.entries))
    with pytest.raises(Gap):
        await load_folded(harness.store, CHAT, with_facts=True)


async def test_a_log_that_is_trimmed_again_and_again_is_not_taken_for_a_damaged_one(harness: Harness) -> None:
    writer = await long_log(harness)
    held = [harness.store.hold("read_log") for _ in range(READS_MAX)]
    loading = _Loading(harness)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(loading.run)
        for each in held:
            await each.entered()
            await trim(harness, writer)
            await lengthen(writer)
            each.let_go()
    assert isinstance(loading.trouble, Unavailable)


async def test_the_chat_as_it_was_is_read_in_pages_too(harness: Harness) -> None:
    writer = await long_log(harness)
    begin = Head.parse(writer.state.head).position - 9
    for position in (begin + 1, begin + 5, begin + 9):
        assert (await state_at(harness.store, CHAT, position)).position == position
    assert harness.store.calls["read_log"] >= 2


async def test_an_actor_takes_up_a_chat_of_many_pages_and_goes_on(harness: Harness) -> None:
    await long_log(harness)
    await harness.own("w2", say("second", "r2"))
    harness.store.page_bytes = LOG_PAGE_BYTES
    assert ("user", "second") in await harness.texts()


class _Loading:
    """Loads the chat while a test changes it."""

    def __init__(self, harness: Harness) -> None:
        self._harness = harness
        self.folded: Folded | None = None
        self.trouble: Exception | None = None

    async def run(self) -> None:
        try:
            self.folded = await load_folded(self._harness.store, CHAT, with_facts=True)
        except Exception as trouble:
            self.trouble = trouble
