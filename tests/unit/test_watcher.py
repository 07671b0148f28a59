"""The watcher of the tests waits for outcomes, and does not wait for a stream that has ended."""

import anyio
import anyio.lowlevel
import pytest

from tests.support.reader import Watcher
from tests.unit.actor_harness import CHAT, Harness, say
from tests.unit.faulty_store import DEADLINE_SECONDS
from threadcast_protocol.wire.commands import Regenerate

pytestmark = pytest.mark.anyio


async def test_waiting_on_a_stream_that_broke_fails_at_once_and_says_why() -> None:
    watcher = Watcher("c1")
    with anyio.fail_after(DEADLINE_SECONDS):
        async with anyio.create_task_group() as tasks:

            async def wait() -> None:
                with pytest.raises(AssertionError, match="the line was cut"):
                    await watcher.until(lambda w: w.state is not None, 10 * DEADLINE_SECONDS)

            tasks.start_soon(wait)
            await anyio.lowlevel.checkpoint()
            watcher.end(OSError("the line was cut"))
    await watcher.until(lambda w: w.has_ended)
    watcher.begin()
    with pytest.raises(TimeoutError):
        await watcher.until(lambda w: w.state is not None, 0)


async def test_rest_is_counted_by_runs_and_not_by_messages() -> None:
    harness = Harness()
    async with harness.watching() as watcher, harness.hosting("w1"):
        await harness.post(say("one"))
        await watcher.at_rest(1, DEADLINE_SECONDS)
        await harness.post(Regenerate(client_request_id="again"))
        await watcher.at_rest(2, DEADLINE_SECONDS)
        assert [role for role, _ in watcher.messages] == ["user", "assistant"]
        async with harness.watching() as late:
            await harness.post(say("two"))
            await late.at_rest(2, DEADLINE_SECONDS)
            await watcher.at_rest(3, DEADLINE_SECONDS)
    assert watcher.runs_ended == 3


async def test_messages_that_were_answered_together_are_one_run() -> None:
    harness = Harness()
    await harness.post(say("one"), say("two"), say("three"))
    async with harness.watching() as watcher, harness.hosting("w1"):
        await watcher.at_rest(2, DEADLINE_SECONDS)
        assert len([role for role, _ in watcher.messages if role == "user"]) == 3
        with pytest.raises(TimeoutError):
            await watcher.at_rest(3, 0.05)
    assert watcher.chat_id == CHAT
