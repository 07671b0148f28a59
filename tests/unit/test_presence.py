"""Typing: a repetition of a stream's last report is passed on at most once a second, and a changed report at once."""

from collections.abc import AsyncIterator

import anyio
import msgspec
import pytest

from tests.unit.faulty_store import DEADLINE_SECONDS
from threadcast.fanout import presence
from threadcast.fanout.presence import PresenceRooms
from threadcast.store.memory.store import MemoryStore

pytestmark = pytest.mark.anyio


async def told(heard: AsyncIterator[bytes | None], count: int) -> list[tuple[str, bool]]:
    """Return the next presence message: its stream, and whether a user is typing there."""
    said: list[tuple[str, bool]] = []
    with anyio.fail_after(DEADLINE_SECONDS):
        while len(said) < count:
            payload = await anext(heard)
            assert payload is not None, "nothing was lost"
            word = msgspec.json.decode(payload)
            said.append((word["stream_id"], word["typing"]))
    return said


async def test_a_repetition_within_a_second_is_dropped_and_a_change_never(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(presence, "TYPING_SECONDS", 3_600.0)
    store = MemoryStore()
    rooms = PresenceRooms(store, shows_names=True)
    async with store.subscribe("presence:ann:c1") as heard:
        for typing in (True, True, True, False, False, True):
            await rooms.type("c1", "ann", typing, "s1")
        await rooms.type("c1", "ann", True, "s2")
        assert await told(heard, 4) == [("s1", True), ("s1", False), ("s1", True), ("s2", True)]


async def test_a_repetition_after_a_second_is_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(presence, "TYPING_SECONDS", 0.0)
    store = MemoryStore()
    rooms = PresenceRooms(store, shows_names=True)
    async with store.subscribe("presence:ann:c1") as heard:
        for _ in range(2):
            await rooms.type("c1", "ann", True, "s1")
        assert await told(heard, 2) == [("s1", True)] * 2


async def test_the_first_word_of_a_stream_is_passed_on_even_when_it_says_that_nobody_types() -> None:
    store = MemoryStore()
    rooms = PresenceRooms(store, shows_names=True)
    async with store.subscribe("presence:ann:c1") as heard:
        await rooms.type("c1", "ann", False, "s1")
        assert await told(heard, 1) == [("s1", False)]
