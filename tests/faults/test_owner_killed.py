"""kill -9 of the worker that owns a chat, at random moments of an answer: another goes on, and nobody sees a seam.

A web process, two workers and a store of their own, as real processes. Each round starts an answer, waits for a
random event of it, and kills its owner; a reader that stayed connected and one that joins afterwards must end with
exactly the text that an undisturbed run gives.
"""

import random
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import anyio
import pytest
import redis

from protocol.messages import JsonObject
from server.store.keys import Keys
from server.store.server_process import ServerProcess, find_binary
from tests.integration.fake_openai import DONE, HANG, STOP, Reply, serve_fake_openai, text
from tests.integration.harness import DEADLINE_SECONDS, Process, Watcher, command, user_message, watching
from tests.integration.harness import start as start_process
from tests.integration.store_fixtures import running_server
from tests.patience import bar_seconds

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

MODEL = "demo/essay?words=100&rate=80"
ROUNDS = 20
MISBEHAVING = Path(__file__).parents[1] / "integration/misbehaving_tools.py"
TAKEOVER_SECONDS = 5.0
"""DESIGN §14: work resumes at most so long after an owner dies."""

FAST = {
    "THREADCAST_LIMITS__LEASE_SECONDS": "1.0",
    "THREADCAST_LIMITS__BEAT_SECONDS": "0.3",
    "THREADCAST_LIMITS__SWEEP_SECONDS": "0.2",
}
"""A shorter lease for the many rounds; one test keeps the real one."""


class House:
    """One web process, two workers, one store. A killed worker is replaced at once. `config` is for all of them."""

    def __init__(
        self,
        store: ServerProcess,
        log: Path,
        stack: ExitStack,
        limits: dict[str, str],
        app: Path = MISBEHAVING,
        config: Path | None = None,
    ) -> None:
        self._app = app
        self._config = ["--config", str(config)] if config is not None else []
        self._environment = {"REDIS_URL": store.url, **limits}
        self._stack = stack
        self._log = log
        self._redis = stack.enter_context(redis.Redis.from_url(store.url))
        self._workers: list[Process] = []
        self.web = self.start("web", "--port", "0")

    async def open(self) -> None:
        await self.web.ready()
        for _ in range(2):
            await self.add_worker()

    async def add_worker(self) -> None:
        process = self.start("worker", "--app", str(self._app))
        self._workers.append(await process.ready())

    def owner(self, chat_id: str) -> Process | None:
        """The worker that holds the chat now; its pid is part of its name."""
        keys = Keys(16)
        name = self._redis.hget(keys.own(keys.bucket_of(chat_id)), chat_id)
        if not isinstance(name, bytes):
            return None
        pid = int(name.decode().split("-")[-2])
        return next((worker for worker in self._workers if worker.pid == pid), None)

    def kill_owner(self, chat_id: str) -> bool:
        owner = self.owner(chat_id)
        if owner is None:
            return False
        owner.kill()
        self._workers.remove(owner)
        return True

    def start(self, *arguments: str) -> Process:
        return self._stack.enter_context(
            start_process(*arguments, *self._config, log=self._log, environment=self._environment)
        )


@pytest.fixture
def house(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[House]:
    limits: dict[str, str] = request.param
    with ExitStack() as stack:
        store = stack.enter_context(contextmanager(running_server)(find_binary(), tmp_path))
        yield House(store, tmp_path / "log", stack, limits)


async def essay(url: str, chat_id: str, params: JsonObject) -> None:
    await command(url, chat_id, {"type": "set_params", "client_request_id": "p", "patch": params})
    await command(url, chat_id, user_message("a", "write"))


def shown_characters(watcher: Watcher) -> int:
    """Of the answer. Not how many deltas: a busy machine puts more into one."""
    shown = watcher.messages if watcher.state is not None else []
    return len(shown[-1][1]) if shown and shown[-1][0] == "assistant" else 0


@pytest.mark.row("SES-3", "SES-4")
@pytest.mark.parametrize("house", [FAST], indirect=True, ids=["fast"])
async def test_at_20_random_moments_a_killed_owner_loses_nothing_and_repeats_nothing(house: House) -> None:
    chance = random.Random(20)
    await house.open()
    async with watching(house.web.url, "reference") as reference:
        await essay(house.web.url, "reference", {"model": MODEL})
        await reference.at_rest()
    expected = reference.messages
    kills = 0
    for number in range(ROUNDS):
        chat_id = f"killed-{number}"
        wish = chance.choice(["auto", "restart", "continue"])
        moment = chance.randrange(0, 4 * len(expected[-1][1]) // 5)
        async with watching(house.web.url, chat_id) as stayed:
            await essay(house.web.url, chat_id, {"model": MODEL, "on_owner_loss": wish})
            await stayed.until(lambda w: shown_characters(w) >= moment)  # noqa: B023 - awaited at once
            kills += house.kill_owner(chat_id)
            async with watching(house.web.url, chat_id) as joined:
                await house.add_worker()
                await stayed.at_rest()
                await joined.at_rest()
        assert stayed.messages == expected, (number, wish, moment)
        assert joined.snapshot == stayed.snapshot
        assert stayed.snapshots == 1, "the reader that stayed was never thrown back to a snapshot"
        if wish != "restart":
            assert "message_removed" not in stayed.types()
    assert kills >= ROUNDS - 2, "the answer was over before its owner could be killed"


@pytest.mark.row("SES-8")
@pytest.mark.parametrize("house", [FAST], indirect=True, ids=["fast"])
async def test_an_owner_that_was_stopped_for_longer_than_its_lease_writes_nothing_when_it_goes_on(house: House) -> None:
    await house.open()
    async with watching(house.web.url, "reference") as reference:
        await essay(house.web.url, "reference", {"model": MODEL})
        await reference.at_rest()
    async with watching(house.web.url, "c1") as stayed:
        await essay(house.web.url, "c1", {"model": MODEL})
        await stayed.until(lambda w: shown_characters(w) > 20)
        former = house.owner("c1")
        assert former is not None
        former.send(signal.SIGSTOP)
        try:
            await stayed.at_rest()
            assert house.owner("c1") is not former
        finally:
            former.send(signal.SIGCONT)
        with anyio.fail_after(DEADLINE_SECONDS):  # it wakes in mid-answer, and its next append is refused
            while not any(word in former.log_text() for word in ("actor.fenced", "lease.lost")):
                await anyio.sleep(0.05)
        await command(house.web.url, "c1", user_message("b", "again", params={"model": "demo/echo"}))
        await stayed.at_rest(2)
        async with watching(house.web.url, "c1") as joined:
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
    """A real server of models on HTTP: what was shown is only taken back where nothing else is left."""
    shown = "The harbour wakes early. Boats leave at dawn, "
    with ExitStack() as stack:
        model = stack.enter_context(serve_fake_openai())
        config = tmp_path / "threadcast.toml"
        config.write_text(
            f'[models]\ndefault = "local/tiny"\n[models.providers.local]\nbase_url = "{model.base_url}"\n'
            f'prefill = "{prefill}"\n'
        )
        store = stack.enter_context(contextmanager(running_server)(find_binary(), tmp_path))
        house = House(store, tmp_path / "log", stack, FAST, config=config)
        await house.open()
        model.replies = [Reply([text(shown), HANG]), Reply([text(second), STOP, DONE])]
        async with watching(house.web.url, "c1") as watcher:
            await essay(house.web.url, "c1", {"on_owner_loss": wish})
            await watcher.until(lambda w: shown_characters(w) >= len(shown))
            assert house.kill_owner("c1")
            await watcher.at_rest()
    answer = shown + "and the town counts them."
    assert watcher.messages == [("user", "write"), ("assistant", answer)]
    assert ("message_removed" in watcher.types()) == is_retracted
    roles = [message["role"] for message in model.asked[1].body["messages"]]
    beginning = {"trailing": ["user", "assistant"], "none": ["user", "assistant", "user"]}[prefill]
    assert roles[1:] == (["user"] if is_retracted else beginning)


@pytest.mark.parametrize("house", [{}], indirect=True, ids=["default"])
async def test_with_the_default_lease_another_worker_speaks_within_five_seconds(house: House) -> None:
    await house.open()
    model = "demo/essay?words=900&rate=80"
    async with watching(house.web.url, "c1") as watcher:
        await essay(house.web.url, "c1", {"model": model})
        await watcher.until(lambda w: w.types().count("stream_delta") > 5)
        assert house.kill_owner("c1")
        killed_at, seen = time.monotonic(), len(watcher.frames)
        await watcher.until(lambda w: len(w.frames) > seen + 3)
        assert time.monotonic() - killed_at < bar_seconds(TAKEOVER_SECONDS)
        assert watcher.state is not None and watcher.state.draft is not None
        await command(house.web.url, "c1", {"type": "abort", "client_request_id": "stop"})
        await watcher.at_rest()


@pytest.mark.row("SES-4")
@pytest.mark.parametrize("house", [FAST], indirect=True, ids=["fast"])
async def test_a_tool_that_must_not_run_twice_does_not(house: House, tmp_path: Path) -> None:
    await house.open()
    async with watching(house.web.url, "c1") as watcher:
        text = 'call leaves_a_mark {"seconds":30}'
        await command(house.web.url, "c1", user_message("a", text, params={"model": "demo/tools"}))
        await watcher.until(lambda w: "tool_status" in w.types())
        assert house.kill_owner("c1")
        await watcher.at_rest()
    statuses = [frame["status"] for frame in watcher.frames if frame["type"] == "tool_status"]
    assert statuses == ["running", "outcome_unknown"]


@pytest.mark.parametrize("house", [FAST], indirect=True, ids=["fast"])
async def test_a_stopped_worker_hands_its_chats_over_without_a_seam(house: House) -> None:
    await house.open()
    async with watching(house.web.url, "reference") as reference:
        await essay(house.web.url, "reference", {"model": MODEL})
        await reference.at_rest()
    async with watching(house.web.url, "c1") as watcher:
        await essay(house.web.url, "c1", {"model": MODEL})
        await watcher.until(lambda w: w.types().count("stream_delta") > 5)
        owner = house.owner("c1")
        assert owner is not None
        assert await owner.stop() == 0
        await watcher.at_rest()
    assert watcher.messages == reference.messages
    assert watcher.snapshots == 1


@pytest.mark.parametrize("house", [FAST], indirect=True, ids=["fast"])
async def test_the_same_command_at_two_web_processes_takes_effect_once(house: House) -> None:
    await house.open()
    other = house.start("web", "--port", "0")
    await other.ready()
    statuses: list[str] = []

    async def post(url: str) -> None:
        answer = await command(url, "c1", user_message("same", "once"))
        statuses.append(answer.json()["status"])

    async with watching(other.url, "c1") as watcher:
        async with anyio.create_task_group() as tasks:
            for number in range(50):
                tasks.start_soon(post, (house.web.url, other.url)[number % 2])
        await watcher.at_rest()
        answer = await command(other.url, "c1", user_message("same", "something else"))
        assert answer.status_code == 409
    assert sorted(set(statuses)) == ["accepted", "duplicate"] and statuses.count("accepted") == 1
    assert [role for role, _ in watcher.messages] == ["user", "assistant"]
