"""Kills, by kill -9, the worker that owns a sub-chat, a sub-chat's parent, or a chat with a process: both chats finish,
no step is done twice, and no process is left running."""

import json
import random
from pathlib import Path

import anyio
import pytest

from tests.support.fleet import Fleet
from tests.support.reader import Watcher, watching
from tests.support.server import DEADLINE_SECONDS, command, user_message
from threadcast_protocol.wire.events import ProcessCompleted, SubchatUpdate

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

APP = Path(__file__).parents[1] / "integration/delegating_tools.py"
ROUNDS = 6


async def ask(fleet: Fleet, chat_id: str, tool: str, arguments: dict[str, object]) -> None:
    text = f"call {tool} {json.dumps(arguments)}"
    await command(fleet.url, chat_id, user_message("a", text, params={"model": "demo/tools?rate=60"}))


def children(watcher: Watcher) -> list[str]:
    return [event.subchat_id for event in watcher.events if isinstance(event, SubchatUpdate)]


@pytest.mark.row("SES-4")
async def test_whoever_is_killed_in_the_middle_of_a_child_parent_and_child_finish_once(fleet: Fleet) -> None:
    chance = random.Random(7)
    kills = 0
    for number in range(ROUNDS):
        parent = f"parent-{number}"
        async with watching(fleet.url, parent) as above:
            await ask(fleet, parent, "delegate", {"task": "say what you can do"})
            await above.until(children)
            (child,) = children(above)
            async with watching(fleet.url, child) as below:
                moment = chance.randrange(0, 6)
                await below.until(lambda w: w.types().count("stream_delta") >= moment or w.runs_ended)  # noqa: B023 - awaited at once
                kills += fleet.kill_owner((parent, child)[number % 2])
                await fleet.add_worker()
                await above.at_rest()
                await below.at_rest()
        assert children(above) == [child]
        assert [role for role, _ in below.messages] == ["user", "assistant"]
        assert [role for role, _ in above.messages] == ["user", "assistant", "tool", "assistant"]
        assert above.messages[2][1] == below.messages[1][1]
        assert (above.runs_ended, below.runs_ended) == (1, 1)
    assert kills >= ROUNDS // 2, "it was over before its owner could be killed"


@pytest.mark.row("SES-4")
async def test_a_process_of_a_killed_worker_is_lost_and_gone(fleet: Fleet, tmp_path: Path) -> None:
    async with watching(fleet.url, "c1") as watcher:
        marker = tmp_path / "pid"
        await ask(fleet, "c1", "run_process", {"command": f"sh -c 'echo $$ > {marker}; exec sleep 600' & wait"})
        await watcher.at_rest()
        with anyio.fail_after(DEADLINE_SECONDS):
            while not (marker.exists() and marker.read_text().strip()):
                await anyio.sleep(0.02)
        pid = int(marker.read_text())
        assert fleet.kill_owner("c1")
        await watcher.until(lambda w: any(isinstance(event, ProcessCompleted) for event in w.events))
        with anyio.fail_after(DEADLINE_SECONDS):
            while _lives(pid):
                await anyio.sleep(0.02)
    (end,) = [event for event in watcher.events if isinstance(event, ProcessCompleted)]
    assert (end.status, end.exit_code) == ("lost", None)


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


async def test_a_stopped_worker_ends_its_processes_and_says_so(fleet: Fleet) -> None:
    async with watching(fleet.url, "c1") as watcher:
        await ask(fleet, "c1", "run_process", {"command": "sleep 600"})
        await watcher.at_rest()
        owner = fleet.owner("c1")
        assert owner is not None
        assert await owner.stop() == 0
        await watcher.until(lambda w: any(isinstance(event, ProcessCompleted) for event in w.events))
    (end,) = [event for event in watcher.events if isinstance(event, ProcessCompleted)]
    assert end.status == "killed"
