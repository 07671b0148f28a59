"""Tests when the model for titles is called, and when it is called again."""

import pytest

from tests.unit.actor_harness import CHAT, Harness, params, say
from threadcast.actor.end import End
from threadcast_protocol.wire.events import ErrorHappened, ThreadUpdated

pytestmark = pytest.mark.anyio


async def attempts(harness: Harness) -> list[str]:
    """Return "failed" or the title for each attempt in the log."""
    return [
        "failed" if isinstance(event, ErrorHappened) else event.title or ""
        for event in await harness.events()
        if isinstance(event, ErrorHappened) or (isinstance(event, ThreadUpdated) and event.is_title_generated is True)
    ]


async def test_a_title_is_made_once_whoever_owns_the_chat_later() -> None:
    harness = Harness(title_model="demo/echo?rate=0")
    await harness.own("w1", say("hello"))
    await harness.own("w2", say("again"))
    assert await attempts(harness) == ["You said: user: hello"]


@pytest.mark.row("TREE-5")
async def test_a_model_that_failed_is_not_asked_again_before_the_next_message() -> None:
    harness = Harness(title_model="nowhere/tiny")
    await harness.own("w1", say("hello"))
    for worker in ("w1", "w2", "w1"):
        await harness.own(worker, params(f"by-{worker}-{len(await harness.events())}", temperature=0.5))
    assert await attempts(harness) == ["failed"]
    await harness.own("w2", say("again"))
    assert await attempts(harness) == ["failed", "failed"]


async def test_an_attempt_that_a_retake_cut_off_is_made_again_and_keeps_the_chat_no_longer() -> None:
    harness = Harness(title_model="demo/hang?after=1&rate=0")
    await harness.post(say("hello"))
    async with harness.owning("w1") as owner:
        await harness.demo.asked(2)  # the answer, then the title
        await harness.store.take(CHAT, "w1", "retake")
        await harness.post(params(temperature=0.5))
        owner.actor.notify()
        await harness.demo.asked(3)
        owner.actor.drain()
        assert await owner.over() is End.HANDED_OVER
