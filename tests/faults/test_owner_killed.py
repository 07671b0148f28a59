"""Kills the worker that owns a chat, by kill -9 at random moments of an answer: another worker continues, and no reader
notices.

The tests use a web process, two workers and a store, all real processes. Each round starts an answer, waits for a
random event of the answer, and kills the chat's owner. A reader that stayed connected and a reader that joins
afterwards must both end with exactly the text that an undisturbed run gives.
"""

import random
import signal
import time
from contextlib import ExitStack
from pathlib import Path

import anyio
import pytest

from tests.bars import bar_seconds
from tests.integration.fake_openai import DONE, HANG, STOP, Reply, serve_fake_openai, text
from tests.support.fleet import FAST, Fleet, fleet_on_new_store
from tests.support.reader import Watcher, watching
from tests.support.server import DEADLINE_SECONDS, command, user_message
from threadcast_protocol.wire.messages import JsonObject

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

MODEL = "demo/essay?words=100&rate=80"
ROUNDS = 20
APP = Path(__file__).parents[1] / "integration/misbehaving_tools.py"
TAKEOVER_SECONDS = 5.0
"""Maximum seconds until work resumes after an owner dies (DESIGN §14)."""


async def essay(url: str, chat_id: str, params: JsonObject) -> None:
    await command(url, chat_id, {"type": "set_params", "client_request_id": "p", "patch": params})
    await command(url, chat_id, user_message("a", "write"))


def shown_characters(watcher: Watcher) -> int:
    """Return the length of the shown answer. A count of deltas would not work: a busy machine puts more text into one
    delta."""
    shown = watcher.messages if watcher.state is not None else []
    return len(shown[-1][1]) if shown and shown[-1][0] == "assistant" else 0


@pytest.mark.row("SES-3", "SES-4")
async def test_at_20_random_moments_a_killed_owner_loses_nothing_and_repeats_nothing(fleet: Fleet) -> None:
    chance = random.Random(20)
    async with watching(fleet.url, "reference") as reference:
        await essay(fleet.url, "reference", {"model": MODEL})
        await reference.at_rest()
    expected = reference.messages
    kills = 0
    for number in range(ROUNDS):
        chat_id = f"killed-{number}"
        wish = chance.choice(["auto", "restart", "continue"])
        moment = chance.randrange(0, 4 * len(expected[-1][1]) // 5)
        async with watching(fleet.url, chat_id) as stayed:
            await essay(fleet.url, chat_id, {"model": MODEL, "on_owner_loss": wish})
            await stayed.until(lambda w: shown_characters(w) >= moment)  # noqa: B023 - awaited at once
            kills += fleet.kill_owner(chat_id)
            async with watching(fleet.url, chat_id) as joined:
                await fleet.add_worker()
                await stayed.at_rest()
                await joined.at_rest()
        assert stayed.messages == expected, (number, wish, moment)
        assert joined.snapshot == stayed.snapshot
        assert stayed.snapshots == 1, "the reader that stayed was never thrown back to a snapshot"
        if wish != "restart":
            assert "message_removed" not in stayed.types()
    assert kills >= ROUNDS - 2, "the answer was over before its owner could be killed"


@pytest.mark.row("SES-8")
async def test_an_owner_that_was_stopped_for_longer_than_its_lease_writes_nothing_when_it_goes_on(
    fleet: Fleet,
) -> None:
    async with watching(fleet.url, "reference") as reference:
        await essay(fleet.url, "reference", {"model": MODEL})
        await reference.at_rest()
    async with watching(fleet.url, "c1") as stayed:
        await essay(fleet.url, "c1", {"model": MODEL})
        await stayed.until(lambda w: shown_characters(w) > 20)
        former = fleet.owner("c1")
        assert former is not None
        former.send(signal.SIGSTOP)
        try:
            await stayed.at_rest()
            assert fleet.owner("c1") is not former
        finally:
            former.send(signal.SIGCONT)
        with anyio.fail_after(
            DEADLINE_SECONDS
        ):  # the former owner wakes during the answer, and its next append is refused
            while not any(word in former.log_text() for word in ("actor.fenced", "lease.lost")):
                await anyio.sleep(0.05)
        await command(fleet.url, "c1", user_message("b", "again", params={"model": "demo/echo"}))
        await stayed.at_rest(2)
        async with watching(fleet.url, "c1") as joined:
            assert joined.snapshot == stayed.snapshot
    assert stayed.messages == [*reference.messages, ("user", "again"), ("assistant", "You said: again")]
    assert stayed.snapshots == 1


@pytest.mark.row("OLD-11", "SES-4")
@pytest.mark.parametrize(
    ("prefill", "wish", "second", "is_retracted"),
    [
        ("trailing", "auto", "and the town counts them.", False),
        ("none", "continue", "Boats leave at dawn, and the town counts them.", False),
        ("none", "auto", "The harbour wakes early. Boats leave at dawn, and the town counts them.", True),
        ("trailing", "restart", "The harbour wakes early. Boats leave at dawn, and the town counts them.", True),
    ],
)
async def test_an_answer_cut_by_kill_9_goes_on_where_the_model_can_be_given_its_beginning(
    tmp_path: Path, prefill: str, wish: str, second: str, is_retracted: bool
) -> None:
    """With a real model server over HTTP, a shown text is removed only if the model cannot continue it."""
    shown = "The harbour wakes early. Boats leave at dawn, "
    with ExitStack() as stack:
        model = stack.enter_context(serve_fake_openai())
        config = tmp_path / "threadcast.toml"
        config.write_text(
            f'[models]\ndefault = "local/tiny"\n[models.providers.local]\nbase_url = "{model.base_url}"\n'
            f'prefill = "{prefill}"\n'
        )
        fleet = stack.enter_context(fleet_on_new_store(tmp_path, "--config", str(config), limits=FAST))
        await fleet.open()
        model.replies = [Reply([text(shown), HANG]), Reply([text(second), STOP, DONE])]
        async with watching(fleet.url, "c1") as watcher:
            await essay(fleet.url, "c1", {"on_owner_loss": wish})
            await watcher.until(lambda w: shown_characters(w) >= len(shown))
            assert fleet.kill_owner("c1")
            await watcher.at_rest()
    answer = shown + "and the town counts them."
    assert watcher.messages == [("user", "write"), ("assistant", answer)]
    assert ("message_removed" in watcher.types()) == is_retracted
    roles = [message["role"] for message in model.asked[1].body["messages"]]
    beginning = {"trailing": ["user", "assistant"], "none": ["user", "assistant", "user"]}[prefill]
    assert roles[1:] == (["user"] if is_retracted else beginning)


@pytest.mark.parametrize("fleet", [{}], indirect=True, ids=["default"])
async def test_with_the_default_lease_another_worker_speaks_within_five_seconds(fleet: Fleet) -> None:
    model = "demo/essay?words=900&rate=80"
    async with watching(fleet.url, "c1") as watcher:
        await essay(fleet.url, "c1", {"model": model})
        await watcher.until(lambda w: w.types().count("stream_delta") > 5)
        assert fleet.kill_owner("c1")
        killed_at, seen = time.monotonic(), len(watcher.frames)
        await watcher.until(lambda w: len(w.frames) > seen + 3)
        assert time.monotonic() - killed_at < bar_seconds(TAKEOVER_SECONDS)
        assert watcher.state is not None and watcher.state.draft is not None
        await command(fleet.url, "c1", {"type": "abort", "client_request_id": "stop"})
        await watcher.at_rest()


@pytest.mark.row("SES-4")
async def test_a_tool_that_must_not_run_twice_does_not(fleet: Fleet, tmp_path: Path) -> None:
    async with watching(fleet.url, "c1") as watcher:
        text = 'call leaves_a_mark {"seconds":30}'
        await command(fleet.url, "c1", user_message("a", text, params={"model": "demo/tools"}))
        await watcher.until(lambda w: "tool_status" in w.types())
        assert fleet.kill_owner("c1")
        await watcher.at_rest()
    statuses = [frame["status"] for frame in watcher.frames if frame["type"] == "tool_status"]
    assert statuses == ["running", "outcome_unknown"]


async def test_a_stopped_worker_hands_its_chats_over_without_a_seam(fleet: Fleet) -> None:
    async with watching(fleet.url, "reference") as reference:
        await essay(fleet.url, "reference", {"model": MODEL})
        await reference.at_rest()
    async with watching(fleet.url, "c1") as watcher:
        await essay(fleet.url, "c1", {"model": MODEL})
        await watcher.until(lambda w: w.types().count("stream_delta") > 5)
        owner = fleet.owner("c1")
        assert owner is not None
        assert await owner.stop() == 0
        await watcher.at_rest()
    assert watcher.messages == reference.messages
    assert watcher.snapshots == 1


async def test_the_same_command_at_two_web_processes_takes_effect_once(fleet: Fleet) -> None:
    other = await fleet.add_web()
    statuses: list[str] = []

    async def post(url: str) -> None:
        answer = await command(url, "c1", user_message("same", "once"))
        statuses.append(answer.json()["status"])

    async with watching(other.url, "c1") as watcher:
        async with anyio.create_task_group() as tasks:
            for number in range(50):
                tasks.start_soon(post, (fleet.url, other.url)[number % 2])
        await watcher.at_rest()
        answer = await command(other.url, "c1", user_message("same", "something else"))
        assert answer.status_code == 409
    assert sorted(set(statuses)) == ["accepted", "duplicate"] and statuses.count("accepted") == 1
    assert [role for role, _ in watcher.messages] == ["user", "assistant"]
