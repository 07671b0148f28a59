"""kill -9 of the worker around a message that interrupts: it is said once, and nothing that waited is lost."""

import random
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import anyio
import pytest

from protocol.events import MessageAdded, RuntimeUpdated
from server.store.server_process import find_binary
from tests.faults.test_owner_killed import FAST, House
from tests.integration.harness import Watcher, command, user_message, watching
from tests.integration.store_fixtures import running_server

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

ROUNDS = 12
ESSAY = {"model": "demo/essay?words=900&rate=80"}
"""Longer than any round: only the interrupt ends it."""


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    with ExitStack() as stack:
        store = stack.enter_context(contextmanager(running_server)(find_binary(), tmp_path))
        yield House(store, tmp_path / "log", stack, FAST)


def said(watcher: Watcher) -> list[str]:
    """The request ids of what people said, as they came: one that is said twice stands there twice."""
    added = [event.message for event in watcher.events if isinstance(event, MessageAdded)]
    return [message.client_request_id or "" for message in added if message.role == "user"]


@pytest.mark.row("CMD-17", "SES-4")
async def test_killed_before_during_and_after_an_interrupt_nothing_is_lost_or_said_twice(house: House) -> None:
    chance = random.Random(14)
    await house.open()
    kills = 0
    for number in range(ROUNDS):
        chat_id = f"interrupted-{number}"
        async with watching(house.web.url, chat_id) as watcher:
            await command(house.web.url, chat_id, user_message("a", "a", params=ESSAY))
            await watcher.until(lambda w: w.types().count("stream_delta") > 2)
            await command(house.web.url, chat_id, user_message("b", "b"))
            await watcher.until(lambda w: w.state is not None and w.state.runtime.queue_size == 1)
            body = user_message("c", "c", interrupt=True)
            if number % 3 == 0:  # it lies in the inbox of a chat whose owner is dead
                kills += house.kill_owner(chat_id)
                await command(house.web.url, chat_id, body)
            else:
                await command(house.web.url, chat_id, body)
                await anyio.sleep(chance.uniform(0.0, 0.03))
                kills += house.kill_owner(chat_id)
            await house.add_worker()
            await watcher.at_rest(3)
            async with watching(house.web.url, chat_id) as joined:
                assert joined.snapshot == watcher.snapshot
        assert said(watcher) == ["a", "c", "b"], number
        assert watcher.snapshots == 1
        outcomes = [e.outcome for e in watcher.events if isinstance(e, RuntimeUpdated) and e.outcome]
        assert outcomes == ["aborted", "complete", "complete"]
        assert [text for role, text in watcher.messages if role == "assistant"][-2:] == ["You said: c", "You said: b"]
    assert kills > ROUNDS // 2


@pytest.mark.row("SES-4")
async def test_a_tool_of_a_dead_owner_is_not_run_again_by_the_one_who_finds_the_interrupt(house: House) -> None:
    await house.open()
    async with watching(house.web.url, "c1") as watcher:
        text = 'call leaves_a_mark {"seconds":30}'
        await command(house.web.url, "c1", user_message("a", text, params={"model": "demo/tools"}))
        await watcher.until(lambda w: "tool_status" in w.types())
        assert house.kill_owner("c1")
        await command(house.web.url, "c1", user_message("b", "b", interrupt=True))
        await watcher.at_rest(2)
    statuses = [frame["status"] for frame in watcher.frames if frame["type"] == "tool_status"]
    assert statuses == ["running", "outcome_unknown"]
    assert said(watcher) == ["a", "b"] and watcher.messages[-1] == ("assistant", "You said: b")
