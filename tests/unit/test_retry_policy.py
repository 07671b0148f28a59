"""The retry policy of an actor: a call that the store does not answer is repeated, until it is answered or the chat is
lost."""

import anyio
import anyio.lowlevel
import pytest

from tests.unit.faulty_store import DEADLINE_SECONDS
from threadcast.actor import retry_policy as retry_policy
from threadcast.actor.retry_policy import RetryPolicy
from threadcast.base.telemetry import Metrics
from threadcast.store.ports import Lost
from threadcast_protocol.wire.errors import Unavailable

pytestmark = pytest.mark.anyio


async def test_a_call_is_repeated_until_it_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry_policy, "RETRY_FIRST_SECONDS", 0.001)
    answers: list[str | None] = ["yes", None, None]

    async def ask() -> str:
        if (answer := answers.pop()) is None:
            raise Unavailable("the store is away")
        return answer

    with anyio.fail_after(DEADLINE_SECONDS):
        assert await RetryPolicy(Metrics()).until_answered(ask) == "yes"


async def test_who_waits_for_the_next_try_stops_at_once_when_the_chat_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry_policy, "RETRY_FIRST_SECONDS", 10 * DEADLINE_SECONDS)
    waiting, asked = RetryPolicy(Metrics()), anyio.Event()

    async def ask() -> None:
        asked.set()
        raise Unavailable("the store is away")

    async def lose() -> None:
        await asked.wait()
        await anyio.lowlevel.checkpoint()  # the call waits by now
        waiting.give_up()

    with anyio.fail_after(DEADLINE_SECONDS):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lose)
            with pytest.raises(Lost):
                await waiting.until_answered(ask)
