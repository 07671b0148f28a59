"""Kills the worker by kill -9 at moments around a message that interrupts: the message is added once, and no waiting
message is lost."""

import random
from pathlib import Path

import anyio
import pytest

from tests.support.fleet import Fleet
from tests.support.reader import Watcher, watching
from tests.support.server import command, user_message
from threadcast_protocol.wire.events import MessageAdded, RuntimeUpdated

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

APP = Path(__file__).parents[1] / "integration/misbehaving_tools.py"
ROUNDS = 12
ESSAY = {"model": "demo/essay?words=900&rate=80"}
"""An answer that is longer than any round, so that only the interrupt ends it."""


def said(watcher: Watcher) -> list[str]:
    """Return the request ids of the user messages in the order of their events; an id that was added twice appears
    twice."""
    added = [event.message for event in watcher.events if isinstance(event, MessageAdded)]
    return [message.client_request_id or "" for message in added if message.role == "user"]


@pytest.mark.row("CMD-17", "SES-4")
async def test_killed_before_during_and_after_an_interrupt_nothing_is_lost_or_said_twice(fleet: Fleet) -> None:
    chance = random.Random(14)
    kills = 0
    for number in range(ROUNDS):
        chat_id = f"interrupted-{number}"
        async with watching(fleet.url, chat_id) as watcher:
            await command(fleet.url, chat_id, user_message("a", "a", params=ESSAY))
            await watcher.until(lambda w: w.types().count("stream_delta") > 2)
            await command(fleet.url, chat_id, user_message("b", "b"))
            await watcher.until(lambda w: w.state is not None and w.state.runtime.queue_size == 1)
            body = user_message("c", "c", interrupt=True)
            if number % 3 == 0:  # the command waits in the inbox of a chat whose owner is dead
                kills += fleet.kill_owner(chat_id)
                await command(fleet.url, chat_id, body)
            else:
                await command(fleet.url, chat_id, body)
                await anyio.sleep(chance.uniform(0.0, 0.03))
                kills += fleet.kill_owner(chat_id)
            await fleet.add_worker()
            await watcher.at_rest(3)
            async with watching(fleet.url, chat_id) as joined:
                assert joined.snapshot == watcher.snapshot
        assert said(watcher) == ["a", "c", "b"], number
        assert watcher.snapshots == 1
        outcomes = [e.outcome for e in watcher.events if isinstance(e, RuntimeUpdated) and e.outcome]
        assert outcomes == ["aborted", "complete", "complete"]
        assert [text for role, text in watcher.messages if role == "assistant"][-2:] == ["You said: c", "You said: b"]
    assert kills > ROUNDS // 2


@pytest.mark.row("SES-4")
async def test_a_tool_of_a_dead_owner_is_not_run_again_by_the_one_who_finds_the_interrupt(fleet: Fleet) -> None:
    async with watching(fleet.url, "c1") as watcher:
        text = 'call leaves_a_mark {"seconds":30}'
        await command(fleet.url, "c1", user_message("a", text, params={"model": "demo/tools"}))
        await watcher.until(lambda w: "tool_status" in w.types())
        assert fleet.kill_owner("c1")
        await command(fleet.url, "c1", user_message("b", "b", interrupt=True))
        await watcher.at_rest(2)
    statuses = [frame["status"] for frame in watcher.frames if frame["type"] == "tool_status"]
    assert statuses == ["running", "outcome_unknown"]
    assert said(watcher) == ["a", "b"] and watcher.messages[-1] == ("assistant", "You said: b")
