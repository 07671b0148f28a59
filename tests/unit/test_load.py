"""A log that is longer than a page: read to its end, begun again when it is trimmed meanwhile, never half folded."""

from collections.abc import Callable

import anyio
import pytest

from protocol.errors import Unavailable
from protocol.events import ThreadUpdated
from protocol.ids import Head
from protocol.ledger import Ledger
from protocol.reducer import Gap
from server.actor.writer import Writer
from server.store.bounds import LOG_PAGE_BYTES
from server.store.load import READS_MAX, Folded, extent_of, load_folded
from server.store.past import state_at
from tests.unit.actor_house import CHAT, House, say

pytestmark = pytest.mark.anyio

PAGE_BYTES = 15_000
"""Three entries of a long log."""


@pytest.fixture
def house() -> House:
    house = House()
    house.store.page_bytes = PAGE_BYTES
    return house


def weight(size_bytes: int) -> Callable[[Ledger], None]:
    return lambda ledger: ledger.say(ThreadUpdated(context={"x": "y" * size_bytes}))


async def lengthen(writer: Writer, entries: int = 9) -> None:
    """Add entries of 5 kB; after all of them no checkpoint is due yet."""
    for number in range(entries):
        await writer.commit(weight(4_900 + number))


async def long_log(house: House) -> Writer:
    writer = await house.writer()
    await lengthen(writer)
    assert not (await house.store.load(CHAT)).is_whole
    return writer


async def trim(house: House, writer: Writer) -> None:
    """Write until a checkpoint comes and all goes that was there before."""
    last = Head.parse(writer.state.head).entry_id
    for _ in range(9):
        await writer.commit(weight(600_000))
        if (trimmed := house.store.requests[-1].trim) is not None and trimmed > last:
            return
    raise AssertionError("nothing was trimmed")


async def test_a_chat_of_ordinary_size_is_loaded_in_one_call() -> None:
    house = House()
    writer = await house.writer()
    await lengthen(writer)
    house.store.calls.clear()
    state, _ = await load_folded(house.store, CHAT, with_facts=True)
    assert state == writer.state
    assert (house.store.calls["load"], house.store.calls["read_log"]) == (1, 0)


async def test_all_pages_together_are_the_chat_and_its_size(house: House) -> None:
    writer = await long_log(house)
    state, extent = await load_folded(house.store, CHAT, with_facts=True)
    assert state == writer.state
    assert house.store.calls["read_log"] >= 2
    house.store.page_bytes = LOG_PAGE_BYTES
    assert extent == extent_of(await house.store.load(CHAT))


async def test_what_is_written_meanwhile_does_not_matter(house: House) -> None:
    writer = await long_log(house)
    head = writer.state.head
    held = house.store.hold("read_log")
    loading = _Loading(house)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(loading.run)
        await held.entered()
        await writer.commit(weight(100))
        held.let_go()
    assert loading.folded is not None and loading.folded.state.head == head


async def test_a_trim_between_two_pages_makes_it_begin_again(house: House) -> None:
    writer = await long_log(house)
    held = house.store.hold("read_log")
    loading = _Loading(house)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(loading.run)
        await held.entered()
        loads = house.store.calls["load"]
        await trim(house, writer)
        held.let_go()
    assert loading.folded is not None and loading.folded.state == writer.state
    assert house.store.calls["load"] == loads + 1


async def test_a_page_that_is_not_answered_is_asked_for_again(house: House) -> None:
    writer = await long_log(house)
    house.store.calls.clear()
    house.store.fail("read_log", "refused", "lost reply")
    state, _ = await load_folded(house.store, CHAT, with_facts=True)
    assert state == writer.state
    assert house.store.calls["load"] == 1


async def test_an_entry_that_is_missing_between_two_pages_is_a_hole(house: House) -> None:
    await long_log(house)
    first = await house.store.load(CHAT)
    house.store.lose_entry(CHAT, len(first.entries))
    with pytest.raises(Gap):
        await load_folded(house.store, CHAT, with_facts=True)


async def test_a_log_that_is_trimmed_again_and_again_is_not_taken_for_a_damaged_one(house: House) -> None:
    writer = await long_log(house)
    held = [house.store.hold("read_log") for _ in range(READS_MAX)]
    loading = _Loading(house)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(loading.run)
        for each in held:
            await each.entered()
            await trim(house, writer)
            await lengthen(writer)
            each.let_go()
    assert isinstance(loading.trouble, Unavailable)


async def test_the_chat_as_it_was_is_read_in_pages_too(house: House) -> None:
    writer = await long_log(house)
    begin = Head.parse(writer.state.head).position - 9
    for position in (begin + 1, begin + 5, begin + 9):
        assert (await state_at(house.store, CHAT, position)).position == position
    assert house.store.calls["read_log"] >= 2


async def test_an_actor_takes_up_a_chat_of_many_pages_and_goes_on(house: House) -> None:
    await long_log(house)
    await house.post(say("second", "r2"))
    await house.own("w2")
    house.store.page_bytes = LOG_PAGE_BYTES
    assert ("user", "second") in await house.texts()


class _Loading:
    """Loads the chat beside what a test does to it."""

    def __init__(self, house: House) -> None:
        self._house = house
        self.folded: Folded | None = None
        self.trouble: Exception | None = None

    async def run(self) -> None:
        try:
            self.folded = await load_folded(self._house.store, CHAT, with_facts=True)
        except Exception as trouble:
            self.trouble = trouble
