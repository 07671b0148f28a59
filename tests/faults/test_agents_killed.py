"""Kills, by kill -9, the worker that calls an operator's agent: while an approval waits, in the middle of an answer,
and between rounds. The answer equals the answer of an undisturbed run, each tool ran once, and all readers agree."""

import random
from pathlib import Path

import pytest

from tests.integration.agents_app import WORDS
from tests.support.fleet import Fleet
from tests.support.reader import Watcher, watching
from tests.support.server import command, user_message
from threadcast_protocol.wire.events import MessageRemoved, PauseRequired, StreamDelta

pytestmark = [pytest.mark.anyio, pytest.mark.slow, pytest.mark.row("AGT-1")]

APP = Path(__file__).parents[1] / "integration/agents_app.py"
ANSWER = "".join(WORDS) + "kept: ['planned by round 0']"
ROUNDS = 4


def deltas(watcher: Watcher) -> int:
    return sum(isinstance(event, StreamDelta) for event in watcher.events)


async def test_an_agents_run_survives_its_worker_while_it_waits_and_while_it_answers(fleet: Fleet) -> None:
    chance = random.Random(17)
    kills = 0
    for number in range(ROUNDS):
        chat_id = f"chat-{number}"
        async with watching(fleet.url, chat_id) as one, watching(fleet.url, chat_id) as other:
            await command(fleet.url, chat_id, user_message("a", "charge me", params={"mode": "bank"}))
            await one.until(lambda w: any(isinstance(event, PauseRequired) for event in w.events))
            kills += fleet.kill_owner(chat_id)  # a waiting chat may have no owner
            pause = next(event for event in one.events if isinstance(event, PauseRequired))
            decision = {"tool_call_id": pause.reasons[0].tool_call_id, "accepted": True}
            decided = {"type": "tool_decisions", "client_request_id": "b", "decisions": [decision]}
            await command(fleet.url, chat_id, decided)
            seen, moment = deltas(one), chance.randrange(1, 12)
            await one.until(lambda w: deltas(w) >= seen + moment or w.runs_ended)  # noqa: B023 - awaited at once
            kills += fleet.kill_owner(chat_id)
            while len(fleet.workers) < 2:
                await fleet.add_worker()
            await one.at_rest()
            await other.until(lambda w: w.state == one.state)
        assert [role for role, _ in one.messages] == ["user", "assistant", "tool", "tool", "assistant"]
        assert one.messages[-1][1] == ANSWER
        assert one.runs_ended == 1
        assert sum(isinstance(event, MessageRemoved) for event in one.events) <= 1
    assert (
        sorted(line for file in fleet.data.rglob("charges") for line in file.read_text().split()) == ["300"] * ROUNDS
    ), "each charge was made once"
    assert kills >= ROUNDS, "the runs were over before their owners could be killed"


async def test_an_agent_may_continue_the_text_that_people_have_seen(fleet: Fleet) -> None:
    async with watching(fleet.url, "c1") as watcher:
        params = {"mode": "goes_on", "on_owner_loss": "continue"}
        await command(fleet.url, "c1", user_message("a", "go", params=params))
        await watcher.until(lambda w: deltas(w) >= 5)
        assert fleet.kill_owner("c1")
        await watcher.at_rest()
    assert watcher.messages[-1] == ("assistant", "".join(WORDS))
    assert not [event for event in watcher.events if isinstance(event, MessageRemoved)]
