"""An owner in trouble: killed, fenced, lost, draining, cut off from the store. The run goes on, and nothing twice."""

import anyio
import anyio.lowlevel
import pytest

from protocol.blobs import Blob
from protocol.codec import encode
from protocol.commands import UserMessage
from protocol.events import ErrorHappened, ThreadUpdated
from protocol.principal import LOCAL
from server.actor import patience
from server.actor.actor import Actor, End
from server.store.memory import MemoryStore
from server.store.port import BlobOutcome, BlobPut
from server.tools.base import Progress, Retry
from server.tools.python import tool
from tests.unit.actor_house import CHAT, LEASE_MS, GatedTool, House, call, params, say, turns
from tests.unit.faulty_store import DEADLINE_SECONDS
from tests.unit.pictures import data_url, hash_of, png_of

pytestmark = pytest.mark.anyio

ESSAY = "demo/essay?words=60&rate=300"
"""Takes a fifth of a second: long enough to be in the middle of it, wherever a test waits for that."""

HANG = "demo/hang?after=3&rate=0"

TITLE = encode([ThreadUpdated(title="new")])


@pytest.fixture
def house() -> House:
    return House()


async def essay_of(house: House) -> str:
    """What an undisturbed run gives."""
    await house.post(say("write", model=ESSAY), chat_id="reference")
    await house.own("reference worker", "reference")
    return (await house.texts("reference"))[-1][1]


async def test_a_model_is_told_of_a_file_whose_store_was_away_longer_than_a_few_tries(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience, "RETRY_FIRST_SECONDS", 0.0)
    blob = Blob(hash_of(b"\x00\xff"), "application/octet-stream", b"\x00\xff")
    await house.post(params())
    put = BlobPut(chat_id=CHAT, owner=LOCAL.id, blob=blob, ttl_seconds=60)
    assert await house.store.put_blob(put) is BlobOutcome.KEPT
    file = {"type": "file", "name": "a.bin", "mime": blob.mime, "blob": blob.hash}
    await house.post(UserMessage(client_request_id="file", content=[{"type": "text", "text": "look"}, file]))
    for _ in range(12):
        house.store.fail("get_blob", "refused")
    assert await house.own("w1") is End.RELEASED
    assert (await house.texts())[-1] == ("assistant", "You said: look")
    assert house.store.calls["get_blob"] == 13


@pytest.mark.parametrize("refused", [1, 12])
async def test_what_a_tool_made_is_kept_though_the_store_was_away_for_a_while(
    monkeypatch: pytest.MonkeyPatch, refused: int
) -> None:
    monkeypatch.setattr(patience, "RETRY_FIRST_SECONDS", 0.0)
    image = png_of(50_000)

    @tool()
    async def draw() -> str:
        """A picture."""
        return data_url(image)

    house = House(draw)
    await house.post(call("draw"))
    for _ in range(refused):
        house.store.fail("put_blob", "refused")
    assert await house.own("w1") is End.RELEASED
    ((_, said),) = [(role, text) for role, text in await house.texts() if role == "tool"]
    assert "could not be kept" not in said
    kept = await house.store.get_blob(CHAT, LOCAL.id, hash_of(image))
    assert kept is not None and kept.data == image
    assert house.store.calls["put_blob"] == refused + 1


# poison


async def killed_while_running(house: House, worker: str, *, previous: str | None = None) -> None:
    """`worker` takes the chat, goes on with the run, and dies."""
    calls = house.store.calls["append"]
    async with house.owning(await house.actor(worker, previous=previous)):
        await house.store.called("append", calls + 1)
        with anyio.fail_after(DEADLINE_SECONDS):
            while not house.demo.open_streams:
                await anyio.lowlevel.checkpoint()


@pytest.mark.row("SES-4")
async def test_trap_15_the_third_takeover_without_progress_ends_the_run_with_crash_loop(house: House) -> None:
    await house.post(say("write", model=HANG))
    for worker in ("w0", "w1", "w2"):
        await killed_while_running(house, worker)
    assert (await house.state()).private.attempts == 2
    assert (await house.state()).runtime.state == "generating"
    assert await house.own("w3") is End.RELEASED
    (error,) = [event for event in await house.events() if isinstance(event, ErrorHappened)]
    assert (error.code, error.fatal) == ("crash_loop", True)
    state = await house.state()
    assert (state.runtime.state, state.runtime.outcome, state.private.attempts) == ("error", "error", 0)
    await house.post(say("hello"))
    await house.own("w4")
    assert (await house.texts())[-1] == ("assistant", "You said: hello")


async def test_trap_15_a_worker_that_finds_its_own_chat_again_is_not_blamed(house: House) -> None:
    await house.post(say("write", model=HANG))
    for _ in range(6):
        await killed_while_running(house, "w1")
    for _ in range(6):
        await killed_while_running(house, "w2", previous="")
    assert (await house.state()).private.attempts == 0
    assert (await house.state()).private.run is not None


async def test_trap_15_a_takeover_whose_answer_was_lost_counts_once(house: House) -> None:
    await house.post(say("write", model=HANG))
    await killed_while_running(house, "w0")
    house.store.fail("take", "lost reply", "lost reply")
    await killed_while_running(house, "w1")
    assert [entry.fence.why for entry in await house.store.read_log(CHAT) if entry.fence][-3:] == [
        "takeover",
        "retake",
        "retake",
    ]
    assert (await house.state()).private.attempts == 1


async def killed_before_its_effect(house: House, *workers: str) -> None:
    """Each takes the chat over and dies before anything that it does is durable."""
    for worker in workers:
        held = house.store.hold("read_inbox")
        async with house.owning(await house.actor(worker)):
            await held.entered()


async def test_trap_15_a_command_that_kills_its_owner_three_times_is_given_up_with_a_final_ack(house: House) -> None:
    await house.post(say("poison"), say("innocent"))
    await killed_before_its_effect(house, "w0", "w1", "w2")
    assert await house.own("w3") is End.RELEASED
    assert [(entry.request_id, reason) for _, entry, reason in house.store.dead] == [("poison", "poison")]
    assert await house.refusals() == {"poison": "poison"}
    assert await house.outcomes("poison") == [(False, True)]
    assert (await house.texts())[-1] == ("assistant", "You said: innocent")


async def test_after_a_command_was_given_up_the_next_one_has_its_own_three_tries(house: House) -> None:
    await house.post(say("poison"))
    await killed_before_its_effect(house, "w0", "w1", "w2")
    await house.own("w3")
    await house.post(say("innocent"))
    await killed_before_its_effect(house, "w4", "w5")
    assert await house.own("w6") is End.RELEASED
    assert await house.refusals() == {"poison": "poison"}


# fenced, lost


async def test_trap_3_fenced_in_the_middle_of_an_answer_it_takes_the_chat_again_and_repeats_no_text(
    house: House,
) -> None:
    essay = await essay_of(house)
    await house.post(say("write", model=ESSAY))
    async with house.watching() as watcher, house.owning(await house.actor("w1")) as owner:
        for number in (3, 6):
            await watcher.until(lambda w: w.types().count("stream_delta") >= number)  # noqa: B023 - awaited at once
            await MemoryStore.take(house.store, CHAT, "w1", "retake")
        await watcher.at_rest()
        assert await owner.over() is End.RELEASED
    assert watcher.messages[-1] == ("assistant", essay)
    assert "message_removed" not in watcher.types()
    assert house.demo.open_streams == 0
    assert house.demo.prefixes[-1] != "" and essay.startswith(house.demo.prefixes[-1])
    fences = [entry.fence for entry in await house.store.read_log(CHAT) if entry.fence]
    assert {fence.why for fence in fences} == {"wake", "retake"}, "which do not count as takeovers"


@pytest.mark.parametrize("is_told_by", ["a command", "a progress report"])
async def test_fenced_while_a_tool_runs_it_is_cancelled_and_its_outcome_is_unknown(is_told_by: str) -> None:
    tool = GatedTool()
    house = House(tool)
    await house.post(call())
    actor = await house.actor("w1")
    async with house.owning(actor) as owner:
        await tool.entered()
        await MemoryStore.take(house.store, CHAT, "w1", "retake")
        if is_told_by == "a command":
            await house.post(params(title="x"))
            actor.notify()
        else:
            tool.report(Progress(message="half way"))
        assert await owner.over() is End.RELEASED
    assert (tool.began, tool.cancelled) == (1, 1)
    assert "outcome_unknown" in await house.tool_statuses()


async def test_lost_to_another_worker_it_ends_without_writing_anything_more(house: House) -> None:
    await house.post(say("write", model=ESSAY))
    actor = await house.actor("w1")
    async with house.watching() as watcher, house.owning(actor) as owner:
        await watcher.until(lambda w: "stream_delta" in w.types())
        calls = house.store.calls["append"]
        actor.lose()
        assert await owner.over() is End.LOST
        assert house.store.calls["append"] <= calls + 1, "at most the append that was in flight"
        assert house.demo.open_streams == 0
    assert house.store.calls["release"] + house.store.calls["handover"] == 0


async def test_lost_while_it_fences_it_does_not_wait_for_a_store_that_is_away(house: House) -> None:
    await house.post(say("write", model=HANG))
    for worker in ("w0", "w1", "w2"):
        await killed_while_running(house, worker)
    actor = await house.actor("w3")  # which would begin by ending the run
    taken = house.store.hold("take", reply_only=True)
    calls = house.store.calls["append"]
    async with house.owning(actor) as owner:
        await taken.entered()
        actor.lose()
        house.store.away.add("append")
        taken.let_go()
        assert await owner.over() is End.LOST
    assert house.store.calls["append"] == calls


async def test_a_chat_that_went_to_another_before_the_fence_is_left_alone(house: House) -> None:
    await house.post(say("hello"))
    late = await house.actor("w1")
    await house.claim("w2")
    assert await late.run() is End.LOST
    assert (await house.store.load(CHAT)).head == ""


# hand over, self-fence


async def test_a_draining_worker_hands_a_run_over_and_the_next_owner_repeats_no_text(house: House) -> None:
    essay = await essay_of(house)
    await house.post(say("write", model=ESSAY))
    actor = await house.actor("w1")
    async with house.watching() as watcher:
        async with house.owning(actor) as owner:
            await watcher.until(lambda w: w.types().count("stream_delta") >= 3)
            actor.drain()
            assert await owner.over() is End.HANDED_OVER
        assert house.demo.open_streams == 0
        (claimed,) = await house.store.claim(house.store.bucket_of(CHAT), "w2", 20, LEASE_MS)
        assert claimed.previous == "", "a hand-over is no takeover"
        await Actor(house.place("w2"), CHAT, claimed.previous).run()
        await watcher.at_rest()
    assert watcher.messages[-1] == ("assistant", essay)
    assert "message_removed" not in watcher.types()


async def test_a_tool_that_ends_in_time_is_not_lost_by_a_hand_over() -> None:
    tool = GatedTool()
    house = House(tool)
    await house.post(call())
    actor = await house.actor("w1")
    async with house.owning(actor) as owner:
        await tool.entered()
        actor.drain()
        await anyio.lowlevel.checkpoint()
        tool.go_on.set()
        assert await owner.over() is End.HANDED_OVER
    await house.own("w2")
    assert (tool.began, tool.cancelled) == (1, 0)
    assert ("tool", "result 1") in await house.texts()


async def test_cut_off_from_the_store_only_a_tool_that_must_not_run_twice_is_cancelled() -> None:
    expected: dict[Retry, int] = {"once": 1, "safe": 0, "idempotent": 0}
    for retry, cancelled in expected.items():
        tool = GatedTool(retry=retry)
        house = House(tool)
        await house.post(call())
        actor = await house.actor("w1")
        async with house.owning(actor) as owner:
            await tool.entered()
            actor.stop_effects()
            await house.post(params(title="looked at afterwards"))
            actor.notify()
            await house.store.called("read_inbox", 2)
            assert tool.cancelled == cancelled, retry
            tool.go_on.set()
            assert await owner.over() is End.RELEASED
        assert tool.began == 1
        assert ("outcome_unknown" in await house.tool_statuses()) is bool(cancelled)
        assert (await house.state()).runtime.outcome == "complete"


async def test_cut_off_in_the_middle_of_a_call_to_the_store_the_tool_is_cancelled_at_once() -> None:
    tool = GatedTool(retry="once")
    house = House(tool)
    await house.post(call())
    actor = await house.actor("w1")
    async with house.owning(actor) as owner:
        await tool.entered()
        await house.post(params(title="never read in time"))
        hold = house.store.hold("read_inbox")
        actor.notify()
        await hold.entered()
        actor.stop_effects()
        await turns()
        assert tool.cancelled == 1
        hold.let_go()
        assert await owner.over() is End.RELEASED
    assert "outcome_unknown" in await house.tool_statuses()


# the store is away


async def test_every_call_whose_answer_is_lost_is_repeated_and_nothing_happens_twice(house: House) -> None:
    for name in ("take", "load", "read_inbox", "append"):
        house.store.fail(name, "lost reply")
    await house.post(say("hello"))
    await house.own("w1")
    assert await house.texts() == [("user", "hello"), ("assistant", "You said: hello")]
    assert await house.folded_log() == await house.state()


async def test_a_release_whose_answer_was_lost_is_over(house: House) -> None:
    house.store.fail("release", "lost reply")
    await house.post(say("hello"))
    assert await house.own("w1") is End.LOST
    assert (await house.texts())[-1] == ("assistant", "You said: hello")


async def test_trap_4_a_command_that_the_store_took_back_has_no_effect(house: House) -> None:
    await house.post(params(title="taken back"))
    actor = await house.actor("w1")
    held = house.store.hold("append")
    async with house.owning(actor) as owner:
        await held.entered()
        house.store.roll_back(CHAT, 1)
        held.let_go()
        assert await owner.over() is End.RELEASED
    assert (await house.state()).thread.title == "New Chat"
