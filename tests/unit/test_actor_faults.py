"""An owner that is killed, fenced, draining, without its lease, or cut off from the store. The run continues, and
nothing takes effect twice."""

import anyio
import anyio.lowlevel
import pytest

from tests.unit.actor_harness import CHAT, LEASE_MS, GatedTool, Harness, call, params, say, turns
from tests.unit.faulty_store import DEADLINE_SECONDS
from tests.unit.pictures import data_url, hash_of, png_of
from threadcast.actor import retry_policy as retry_policy
from threadcast.actor.actor import Actor
from threadcast.actor.end import End
from threadcast.actor.former_owner import FormerOwner
from threadcast.store.memory.store import MemoryStore
from threadcast.store.ports import BlobOutcome, BlobPut
from threadcast.tools.base import Retry
from threadcast.tools.context import Progress
from threadcast.tools.python import tool
from threadcast_protocol.framing.codec import encode
from threadcast_protocol.wire.blobs import Blob
from threadcast_protocol.wire.commands import UserMessage
from threadcast_protocol.wire.events import ErrorHappened, ThreadUpdated
from threadcast_protocol.wire.principal import LOCAL

pytestmark = pytest.mark.anyio

ESSAY = "demo/essay?words=60&rate=300"
"""A model whose answer takes a fifth of a second: long enough for a test to act in the middle of the answer."""

HANG = "demo/hang?after=3&rate=0"

TITLE = encode([ThreadUpdated(title="new")])


async def essay_of(harness: Harness) -> str:
    """The result of a run without faults."""
    await harness.post(say("write", model=ESSAY), chat_id="reference")
    await harness.own("reference worker", chat_id="reference")
    return (await harness.texts("reference"))[-1][1]


async def test_a_model_is_told_of_a_file_whose_store_was_away_longer_than_a_few_tries(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retry_policy, "RETRY_FIRST_SECONDS", 0.0)
    blob = Blob(hash_of(b"\x00\xff"), "application/octet-stream", b"\x00\xff")
    await harness.post(params())
    put = BlobPut(chat_id=CHAT, owner=LOCAL.id, blob=blob, ttl_seconds=60)
    assert await harness.store.put_blob(put) is BlobOutcome.KEPT
    file = {"type": "file", "name": "a.bin", "mime": blob.mime, "blob": blob.hash}
    await harness.post(UserMessage(client_request_id="file", content=[{"type": "text", "text": "look"}, file]))
    for _ in range(12):
        harness.store.fail("get_blob", "refused")
    assert await harness.own("w1") is End.RELEASED
    assert (await harness.texts())[-1] == ("assistant", "You said: look")
    assert harness.store.calls["get_blob"] == 13


@pytest.mark.parametrize("refused", [1, 12])
async def test_what_a_tool_made_is_kept_though_the_store_was_away_for_a_while(
    monkeypatch: pytest.MonkeyPatch, refused: int
) -> None:
    monkeypatch.setattr(retry_policy, "RETRY_FIRST_SECONDS", 0.0)
    image = png_of(50_000)

    @tool()
    async def draw() -> str:
        """A picture."""
        return data_url(image)

    harness = Harness(draw)
    await harness.post(call("draw"))
    for _ in range(refused):
        harness.store.fail("put_blob", "refused")
    assert await harness.own("w1") is End.RELEASED
    ((_, said),) = [(role, text) for role, text in await harness.texts() if role == "tool"]
    assert "could not be kept" not in said
    kept = await harness.store.get_blob(CHAT, LOCAL.id, hash_of(image))
    assert kept is not None and kept.data == image
    assert harness.store.calls["put_blob"] == refused + 1


# poison


async def killed_while_running(harness: Harness, worker: str, *, previous: str | None = None) -> None:
    """Let `worker` take the chat, continue the run, and die."""
    calls = harness.store.calls["append"]
    async with harness.owning(worker, previous=previous):
        await harness.store.called("append", calls + 1)
        with anyio.fail_after(DEADLINE_SECONDS):
            while not harness.demo.open_streams:
                await anyio.lowlevel.checkpoint()


@pytest.mark.row("SES-4")
async def test_trap_15_the_third_takeover_without_progress_ends_the_run_with_crash_loop(harness: Harness) -> None:
    await harness.post(say("write", model=HANG))
    for worker in ("w0", "w1", "w2"):
        await killed_while_running(harness, worker)
    assert (await harness.state()).private.attempts == 2
    assert (await harness.state()).runtime.state == "generating"
    assert await harness.own("w3") is End.RELEASED
    (error,) = [event for event in await harness.events() if isinstance(event, ErrorHappened)]
    assert (error.code, error.fatal) == ("crash_loop", True)
    state = await harness.state()
    assert (state.runtime.state, state.runtime.outcome, state.private.attempts) == ("error", "error", 0)
    await harness.own("w4", say("hello"))
    assert (await harness.texts())[-1] == ("assistant", "You said: hello")


async def test_trap_15_a_worker_that_finds_its_own_chat_again_is_not_blamed(harness: Harness) -> None:
    await harness.post(say("write", model=HANG))
    for _ in range(6):
        await killed_while_running(harness, "w1")
    for _ in range(6):
        await killed_while_running(harness, "w2", previous="")
    assert (await harness.state()).private.attempts == 0
    assert (await harness.state()).private.run is not None


async def test_trap_15_a_takeover_whose_answer_was_lost_counts_once(harness: Harness) -> None:
    await harness.post(say("write", model=HANG))
    await killed_while_running(harness, "w0")
    harness.store.fail("take", "lost reply", "lost reply")
    await killed_while_running(harness, "w1")
    assert [entry.fence.why for entry in await harness.store.read_log(CHAT) if entry.fence][-3:] == [
        "takeover",
        "retake",
        "retake",
    ]
    assert (await harness.state()).private.attempts == 1


async def killed_before_its_effect(harness: Harness, *workers: str) -> None:
    """Let each worker take the chat over and die before any of its work is durable."""
    for worker in workers:
        held = harness.store.hold("read_inbox")
        async with harness.owning(worker):
            await held.entered()


async def test_trap_15_a_command_that_kills_its_owner_three_times_is_given_up_with_a_final_ack(
    harness: Harness,
) -> None:
    await harness.post(say("poison"), say("innocent"))
    await killed_before_its_effect(harness, "w0", "w1", "w2")
    assert await harness.own("w3") is End.RELEASED
    assert [(entry.request_id, reason) for _, entry, reason in harness.store.dead] == [("poison", "poison")]
    assert await harness.refusals() == {"poison": "poison"}
    assert await harness.outcomes("poison") == [(False, True)]
    (error,) = [event for event in await harness.events() if isinstance(event, ErrorHappened)]
    assert (error.code, error.fatal) == ("poison", False)
    said = [("error", error.message), ("user", "innocent"), ("assistant", "You said: innocent")]
    assert await harness.texts() == said
    assert (await harness.state()).thread.title == "innocent", "the report is no question"


async def test_a_command_that_asks_for_no_answer_is_given_up_without_a_message(harness: Harness) -> None:
    await harness.post(params("poison", title="x"))
    await killed_before_its_effect(harness, "w0", "w1", "w2")
    assert await harness.own("w3") is End.RELEASED
    assert await harness.refusals() == {"poison": "poison"}
    assert await harness.texts() == []


async def test_after_a_command_was_given_up_the_next_one_has_its_own_three_tries(harness: Harness) -> None:
    await harness.post(say("poison"))
    await killed_before_its_effect(harness, "w0", "w1", "w2")
    await harness.own("w3")
    await harness.post(say("innocent"))
    await killed_before_its_effect(harness, "w4", "w5")
    assert await harness.own("w6") is End.RELEASED
    assert await harness.refusals() == {"poison": "poison"}


async def test_workers_that_die_while_a_chat_has_no_work_do_not_count_against_its_next_command() -> None:
    harness = Harness()
    harness.linger_seconds = DEADLINE_SECONDS
    await harness.post(say("hello"))
    for worker in ("w0", "w1", "w2", "w3"):
        async with harness.owning(worker):
            await harness.until_rest()
            with anyio.fail_after(DEADLINE_SECONDS):
                while (await harness.state()).private.attempts or worker not in await harness.fences():
                    await anyio.sleep(0.005)
    harness.linger_seconds = 0.0
    await harness.post(say("innocent"))
    await killed_before_its_effect(harness, "w4")
    assert await harness.own("w5") is End.RELEASED
    assert await harness.refusals() == {}


# fenced, lost


async def test_trap_3_fenced_in_the_middle_of_an_answer_it_takes_the_chat_again_and_repeats_no_text(
    harness: Harness,
) -> None:
    essay = await essay_of(harness)
    await harness.post(say("write", model=ESSAY))
    async with harness.watching() as watcher, harness.owning("w1") as owner:
        for number in (3, 6):
            await watcher.until(lambda w: w.types().count("stream_delta") >= number)  # noqa: B023 - awaited at once
            await MemoryStore.take(harness.store, CHAT, "w1", "retake")
        await watcher.at_rest()
        assert await owner.over() is End.RELEASED
    assert watcher.messages[-1] == ("assistant", essay)
    assert "message_removed" not in watcher.types()
    assert harness.demo.open_streams == 0
    assert harness.demo.prefixes[-1] != "" and essay.startswith(harness.demo.prefixes[-1])
    fences = [entry.fence for entry in await harness.store.read_log(CHAT) if entry.fence]
    assert {fence.why for fence in fences} == {"wake", "retake"}, "which do not count as takeovers"


@pytest.mark.parametrize("is_told_by", ["a command", "a progress report"])
async def test_fenced_while_a_tool_runs_it_is_cancelled_and_its_outcome_is_unknown(is_told_by: str) -> None:
    tool = GatedTool()
    harness = Harness(tool)
    await harness.post(call())
    async with harness.owning("w1") as owner:
        await tool.entered()
        await MemoryStore.take(harness.store, CHAT, "w1", "retake")
        if is_told_by == "a command":
            await harness.post(params(title="x"))
            owner.actor.notify()
        else:
            tool.report(Progress(message="half way"))
        assert await owner.over() is End.RELEASED
    assert (tool.began, tool.cancelled) == (1, 1)
    assert "outcome_unknown" in await harness.tool_statuses()


async def test_lost_to_another_worker_it_ends_without_writing_anything_more(harness: Harness) -> None:
    await harness.post(say("write", model=ESSAY))
    async with harness.watching() as watcher, harness.owning("w1") as owner:
        await watcher.until(lambda w: "stream_delta" in w.types())
        calls = harness.store.calls["append"]
        owner.actor.lose()
        assert await owner.over() is End.LOST
        assert harness.store.calls["append"] <= calls + 1, "at most the append that was in flight"
        assert harness.demo.open_streams == 0
    assert harness.store.calls["release"] + harness.store.calls["handover"] == 0


async def test_lost_while_it_fences_it_does_not_wait_for_a_store_that_is_away(harness: Harness) -> None:
    await harness.post(say("write", model=HANG))
    for worker in ("w0", "w1", "w2"):
        await killed_while_running(harness, worker)
    actor = await harness.actor("w3")  # a takeover would begin by ending the run
    taken = harness.store.hold("take", reply_only=True)
    calls = harness.store.calls["append"]
    async with harness.owning(actor) as owner:
        await taken.entered()
        actor.lose()
        harness.store.away.add("append")
        taken.let_go()
        assert await owner.over() is End.LOST
    assert harness.store.calls["append"] == calls


async def test_a_chat_that_went_to_another_before_the_fence_is_left_alone(harness: Harness) -> None:
    await harness.post(say("hello"))
    late = await harness.actor("w1")
    await harness.claim("w2")
    assert await late.run() is End.LOST
    assert (await harness.store.load(CHAT)).head == ""


# hand over, self-fence


async def test_a_draining_worker_hands_a_run_over_and_the_next_owner_repeats_no_text(harness: Harness) -> None:
    essay = await essay_of(harness)
    await harness.post(say("write", model=ESSAY))
    actor = await harness.actor("w1")
    async with harness.watching() as watcher:
        async with harness.owning(actor) as owner:
            await watcher.until(lambda w: w.types().count("stream_delta") >= 3)
            actor.drain()
            assert await owner.over() is End.HANDED_OVER
        assert harness.demo.open_streams == 0
        (claimed,) = await harness.store.claim(harness.store.bucket_of(CHAT), "w2", 20, LEASE_MS)
        assert claimed.previous == "", "a hand-over is no takeover"
        await Actor(harness.worker_context("w2"), CHAT, FormerOwner(claimed.previous)).run()
        await watcher.at_rest()
    assert watcher.messages[-1] == ("assistant", essay)
    assert "message_removed" not in watcher.types()


async def test_a_tool_that_ends_in_time_is_not_lost_by_a_hand_over() -> None:
    tool = GatedTool()
    harness = Harness(tool)
    await harness.post(call())
    async with harness.owning("w1") as owner:
        await tool.entered()
        owner.actor.drain()
        await anyio.lowlevel.checkpoint()
        tool.go_on.set()
        assert await owner.over() is End.HANDED_OVER
    await harness.own("w2")
    assert (tool.began, tool.cancelled) == (1, 0)
    assert ("tool", "result 1") in await harness.texts()


async def test_cut_off_from_the_store_only_a_tool_that_must_not_run_twice_is_cancelled() -> None:
    expected: dict[Retry, int] = {"once": 1, "safe": 0, "idempotent": 0}
    for retry, cancelled in expected.items():
        tool = GatedTool(retry=retry)
        harness = Harness(tool)
        await harness.post(call())
        async with harness.owning("w1") as owner:
            await tool.entered()
            owner.actor.stop_effects()
            await harness.post(params(title="looked at afterwards"))
            owner.actor.notify()
            await harness.store.called("read_inbox", 2)
            assert tool.cancelled == cancelled, retry
            tool.go_on.set()
            assert await owner.over() is End.RELEASED
        assert tool.began == 1
        assert ("outcome_unknown" in await harness.tool_statuses()) is bool(cancelled)
        assert (await harness.state()).runtime.outcome == "complete"


async def test_cut_off_in_the_middle_of_a_call_to_the_store_the_tool_is_cancelled_at_once() -> None:
    tool = GatedTool(retry="once")
    harness = Harness(tool)
    await harness.post(call())
    async with harness.owning("w1") as owner:
        await tool.entered()
        await harness.post(params(title="never read in time"))
        hold = harness.store.hold("read_inbox")
        owner.actor.notify()
        await hold.entered()
        owner.actor.stop_effects()
        await turns()
        assert tool.cancelled == 1
        hold.let_go()
        assert await owner.over() is End.RELEASED
    assert "outcome_unknown" in await harness.tool_statuses()


# the store is away


async def test_every_call_whose_answer_is_lost_is_repeated_and_nothing_happens_twice(harness: Harness) -> None:
    for name in ("take", "load", "read_inbox", "append"):
        harness.store.fail(name, "lost reply")
    await harness.own("w1", say("hello"))
    assert await harness.texts() == [("user", "hello"), ("assistant", "You said: hello")]
    assert await harness.folded_log() == await harness.state()


async def test_a_release_whose_answer_was_lost_is_over(harness: Harness) -> None:
    harness.store.fail("release", "lost reply")
    assert await harness.own("w1", say("hello")) is End.LOST
    assert (await harness.texts())[-1] == ("assistant", "You said: hello")


async def test_trap_4_a_command_that_the_store_took_back_has_no_effect(harness: Harness) -> None:
    await harness.post(params(title="taken back"))
    actor = await harness.actor("w1")
    held = harness.store.hold("append")
    async with harness.owning(actor) as owner:
        await held.entered()
        harness.store.roll_back(CHAT, 1)
        held.let_go()
        assert await owner.over() is End.RELEASED
    assert (await harness.state()).thread.title == "New Chat"
