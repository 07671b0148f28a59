"""The contract of every store for a log that is larger than one reply: pages are complete, in order, and bounded."""

import pytest
from msgspec.structs import replace

from tests.integration.store_fixtures import CHAT, entry, owned
from threadcast.chat.entries import RawEntry
from threadcast.store.bounds import LOG_PAGE_BYTES
from threadcast.store.ports import AppendRequest, Store
from threadcast_protocol.wire.ids import Head

pytestmark = pytest.mark.anyio


async def append(store: Store, sizes: list[int]) -> list[str]:
    """Append an entry of each size; returns the heads of the whole log, which begins with the fence's head."""
    heads = [(await owned(store)).head]
    for number, size in enumerate(sizes):
        request: AppendRequest = entry(heads[-1], digest=f"{number:016x}")
        request = replace(request, events=b'["' + b"x" * (size - 4) + b'"]')
        await store.append(request)
        heads.append(request.head)
    return heads


def size_of(page: list[RawEntry]) -> int:
    return sum(len(each.events) for each in page)


async def pages_of(store: Store, head: str) -> list[list[RawEntry]]:
    pages = [(await store.load(CHAT)).entries]
    while page := await store.read_log(CHAT, Head.parse(head).entry_id, after=pages[-1][-1].entry_id):
        pages.append(page)
    return pages


@pytest.mark.parametrize("sizes", [[3_000_000] * 7, [1_000] * 100 + [2_000_000] * 30, [700] * 300], ids=str)
async def test_pages_are_bounded_and_together_are_the_log(store: Store, sizes: list[int]) -> None:
    heads = await append(store, sizes)
    pages = await pages_of(store, heads[-1])
    assert [each.head for page in pages for each in page] == heads
    assert all(size_of(page) <= LOG_PAGE_BYTES for page in pages)
    assert (await store.load(CHAT)).is_whole is (sum(sizes) < LOG_PAGE_BYTES) is (len(pages) == 1)
    newest = await store.read_log(CHAT, newest=True)
    assert [each.head for each in newest] == heads[-len(newest) :]
    assert size_of(newest) <= LOG_PAGE_BYTES < size_of(newest) + max(sizes) or len(newest) == len(heads)


async def test_an_entry_that_is_larger_than_a_page_is_a_page(store: Store) -> None:
    heads = await append(store, [1_000, LOG_PAGE_BYTES + 1, 1_000])
    pages = await pages_of(store, heads[-1])
    assert [[each.head for each in page] for page in pages] == [heads[:2], heads[2:3], heads[3:]]


async def test_a_checkpoint_comes_with_the_first_page_after_it(store: Store) -> None:
    heads = await append(store, [3_000_000] * 2)
    await store.append(request := entry(heads[-1], checkpoint=b"s"))
    heads.append(request.head)
    for number in range(4):
        request = replace(entry(heads[-1], digest=f"{number:016x}"), events=b'["' + b"x" * 3_000_000 + b'"]')
        await store.append(request)
        heads.append(request.head)
    loaded = await store.load(CHAT)
    assert (loaded.checkpoint, loaded.head, loaded.is_whole) == ((heads[3], 1, b"s"), heads[-1], False)
    assert [each.head for each in loaded.entries] == heads[4:6]
    assert [each.head for each in await store.read_log(CHAT)] == heads[:4], "of the whole log"
