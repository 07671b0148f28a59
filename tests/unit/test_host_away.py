"""The host while it drains, or while its store is away or gives invalid answers: chats are released or fenced, and the
host continues."""

import anyio
import anyio.lowlevel
import pytest
import structlog
from structlog.contextvars import merge_contextvars
from structlog.testing import capture_logs

from tests.unit.actor_harness import CHAT, FAST, GatedTool, Harness, abort, call, params, say
from tests.unit.faulty_store import DEADLINE_SECONDS
from tests.unit.host_harness import BELLS_ONLY, ESSAY, TITLE, swept, writing
from threadcast.actor.lease_timings import LeaseTimings
from threadcast.tools.base import Retry

pytestmark = pytest.mark.anyio


# handing chats back, losing the store


@pytest.mark.row("SES-4")
async def test_a_drained_host_gives_every_chat_back_and_another_goes_on_without_a_seam(harness: Harness) -> None:
    chats = ("a", "b")
    async with (
        harness.watching("a") as first,
        harness.watching("b") as second,
        harness.hosting("w1") as host,
        anyio.create_task_group() as tasks,
    ):
        for chat_id in chats:
            await harness.post(say("write", model=ESSAY), chat_id=chat_id)
        for watcher in (first, second):
            await watcher.until(lambda w: w.types().count("stream_delta") >= 2, DEADLINE_SECONDS)
        assert await host.drain() == 0
        assert harness.demo.open_streams == 0
        takes = harness.store.calls["take"]

        async def go_on() -> None:
            async with harness.hosting("w2"):
                for watcher in (first, second):
                    await watcher.at_rest(1, DEADLINE_SECONDS)

        tasks.start_soon(go_on)
    assert harness.store.calls["take"] == takes + 2
    assert first.messages == second.messages
    for watcher in (first, second):
        assert "message_removed" not in watcher.types()
        assert watcher.snapshots == 1


async def test_a_draining_host_takes_no_new_chat_and_gives_back_the_bell_that_it_heard(harness: Harness) -> None:
    async with harness.watching() as watcher, harness.hosting("w1", BELLS_ONLY) as host:
        await swept(harness)
        assert await host.drain() == 0
        async with harness.hosting("w2", BELLS_ONLY):
            await harness.store.called("check_buckets", 2)
            await harness.post(say("hello"))
            await watcher.at_rest(1, DEADLINE_SECONDS)
        assert [entry.fence.worker for entry in await harness.store.read_log(CHAT) if entry.fence] == ["w2"]


@pytest.mark.parametrize(
    ("retry", "has_beats", "outcome"),
    [("once", False, "outcome_unknown"), ("safe", False, "done"), ("once", True, "done")],
)
async def test_without_beats_for_most_of_a_lease_a_tool_that_must_not_run_twice_is_cancelled(
    retry: Retry, has_beats: bool, outcome: str
) -> None:
    tool = GatedTool(retry=retry)
    harness = Harness(tool)
    # After 0.7 of a lease without a beat, a worker fences itself. With beats the lease is longer, since a busy machine
    # may delay them for half a second; the 30 or 100 beats of 0.02 s last longer than 0.7 of the lease.
    timings = LeaseTimings(lease_seconds=2.0 if has_beats else 0.5, beat_seconds=0.02, sweep_seconds=0.02)
    async with harness.watching() as watcher, harness.hosting("w1", timings):
        await harness.post(call())
        await tool.entered()
        if not has_beats:
            harness.store.away.add("beat")
        if outcome == "outcome_unknown":
            await watcher.at_rest(1, DEADLINE_SECONDS)
        else:
            await harness.store.called("beat", harness.store.calls["beat"] + (100 if has_beats else 30))
            tool.go_on.set()
            await watcher.at_rest(1, DEADLINE_SECONDS)
    statuses = [frame["status"] for frame in watcher.frames if frame["type"] == "tool_status"]
    assert statuses == ["running", outcome]
    assert (tool.began, tool.cancelled) == (1, int(outcome == "outcome_unknown"))


async def test_a_beat_that_hangs_does_not_keep_a_host_from_fencing_itself() -> None:
    tool = GatedTool(retry="once")
    harness = Harness(tool)
    timings = LeaseTimings(lease_seconds=0.5, beat_seconds=0.02, sweep_seconds=0.02)
    async with harness.watching() as watcher, harness.hosting("w1", timings):
        await harness.post(call())
        await tool.entered()
        beat = harness.store.hold("beat")
        await beat.entered()
        await watcher.at_rest(1, DEADLINE_SECONDS)
        beat.let_go()
    statuses = [frame["status"] for frame in watcher.frames if frame["type"] == "tool_status"]
    assert statuses == ["running", "outcome_unknown"]


async def test_a_beat_that_says_lost_of_an_actor_that_has_ended_is_not_held_against_the_next_one(
    harness: Harness,
) -> None:
    async with harness.watching() as watcher, harness.hosting("w1"):
        released = harness.store.hold("release", reply_only=True)
        await harness.post(params(title="x"))
        await released.entered()
        beat = harness.store.hold("beat", reply_only=True)
        await beat.entered()  # the host has found that no worker owns the chat
        released.let_go()
        await writing(harness, watcher)
        beat.let_go()
        await harness.store.called("beat", harness.store.calls["beat"] + 1)
        await harness.post(abort())
        await watcher.at_rest(1, DEADLINE_SECONDS)
        assert harness.store.calls["take"] == 2


async def test_a_bucket_whose_beats_hang_takes_none_of_the_others_with_it() -> None:
    """In a Cluster one node may be unreachable: its chats are fenced, and chats of other nodes keep their leases."""
    tool = GatedTool(retry="once")
    harness = Harness(tool)
    timings = LeaseTimings(lease_seconds=0.5, beat_seconds=0.02, sweep_seconds=0.02)
    other = next(f"c{n}" for n in range(100) if harness.store.bucket_of(f"c{n}") != harness.store.bucket_of(CHAT))
    async with harness.watching() as watcher, harness.watching(other) as elsewhere, harness.hosting("w1", timings):
        await harness.post(call())
        await tool.entered()
        beat = harness.store.hold("beat")
        await beat.entered()
        await harness.post(call(), chat_id=other)
        await watcher.at_rest(1, DEADLINE_SECONDS)
        await tool.entered(2)
        # 0.6 s, longer than a lease lasts without a beat
        await harness.store.called("beat", harness.store.calls["beat"] + 30)
        tool.go_on.set()
        await elsewhere.at_rest(1, DEADLINE_SECONDS)
        beat.let_go()
    assert (await harness.tool_statuses(), await harness.tool_statuses(other)) == (
        ["running", "outcome_unknown"],
        ["running", "done"],
    )


async def test_a_store_that_was_away_ends_nothing(harness: Harness) -> None:
    async with harness.watching() as watcher, harness.hosting("w1"):
        await harness.post(say("write", model=ESSAY))
        await watcher.until(lambda w: "stream_delta" in w.types(), DEADLINE_SECONDS)
        harness.store.away.update({"append", "beat", "check_buckets"})
        for name in ("append", "beat", "check_buckets"):
            await harness.store.called(name, harness.store.calls[name] + 1)
        harness.store.away.clear()
        await watcher.at_rest(1, DEADLINE_SECONDS)
        await harness.post(params(title="x"))
        await watcher.until(lambda w: w.state is not None and w.state.thread.title == "x", DEADLINE_SECONDS)


async def test_replies_that_make_no_sense_are_counted_and_do_not_end_a_host(harness: Harness) -> None:
    harness.store.broken.update({"bell", "mail", "check_buckets"})
    async with harness.watching() as watcher, harness.hosting("w1"):
        for name in ("bell", "mail", "check_buckets"):
            await harness.store.called(name, 2)
        harness.store.broken = {"beat"}
        await writing(harness, watcher)
        await harness.store.called("beat", 2)
        harness.store.broken.clear()
        await harness.post(abort())
        await watcher.at_rest(1, DEADLINE_SECONDS)
    shown = harness.metrics.render().decode()
    for kind in ("bell", "mail", "beat", "check"):
        assert f'threadcast_store_errors_total{{kind="{kind}"}}' in shown


async def test_a_bucket_whose_claim_fails_does_not_keep_the_others_waiting(harness: Harness) -> None:
    harness.store.loses_bells = True
    bucket_of = harness.store.bucket_of
    first = next(name for name in map(str, range(999)) if bucket_of(name) < bucket_of(CHAT))
    await harness.post(say("hello"), chat_id=first)
    await harness.post(say("hello"))
    harness.store.fail("claim", "refused")  # the claim of the first due bucket of the first sweep
    async with harness.watching() as watcher, harness.hosting("w1", BELLS_ONLY):
        await watcher.at_rest(1, DEADLINE_SECONDS)
    assert await harness.store.read_log(first) == []


async def test_a_set_aside_that_fails_does_not_end_a_host(harness: Harness) -> None:
    await harness.abandoned("w0", say("hello"))
    await harness.add_entry(TITLE, count=5)
    harness.store.clock.now_ms += FAST.lease_ms
    harness.store.broken.add("handover")
    async with harness.watching("other") as watcher, harness.hosting("w1"):
        await harness.store.called("handover", 1)
        await harness.post(say("hello"), chat_id="other")
        await watcher.at_rest(1, DEADLINE_SECONDS)


async def test_only_the_newest_crashes_and_unreadable_logs_are_remembered(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("threadcast.actor.host.REMEMBERED_MAX", 3)
    harness.store.broken.add("take")  # an exception that no actor expects
    async with harness.hosting("w1") as host:
        for number in range(6):
            await harness.post(say("hello"), chat_id=f"chat-{number}")
            with anyio.fail_after(DEADLINE_SECONDS):
                while f"chat-{number}" not in host._crashed:
                    await anyio.lowlevel.checkpoint()
        assert list(host._crashed) == ["chat-3", "chat-4", "chat-5"]
    for number in range(6):
        await host._set_aside(f"chat-{number}")
    assert list(host._unfoldable) == ["chat-3", "chat-4", "chat-5"]


# faults in the content of the log


async def test_every_line_from_inside_an_actor_says_its_own_chat(harness: Harness) -> None:
    with capture_logs(processors=[merge_contextvars]) as logs:
        async with harness.hosting("w1"), anyio.create_task_group() as tasks:

            async def fail(chat_id: str) -> None:
                async with harness.watching(chat_id) as watcher:
                    for number in range(3):
                        await harness.post(say("hello", f"{chat_id}-{number}", model="demo/error"), chat_id=chat_id)
                    await watcher.until(lambda w: w.types().count("error") == 3, DEADLINE_SECONDS)

            for chat_id in ("a", "b", "c"):
                tasks.start_soon(fail, chat_id)
    failures = [line["chat_id"] for line in logs if line["event"] == "model.failed"]
    assert sorted(failures) == ["a", "a", "a", "b", "b", "b", "c", "c", "c"]
    assert structlog.contextvars.get_contextvars() == {}


# answers of the store that no table lists


@pytest.mark.parametrize("call", ["claim", "beat", "take", "load", "read_inbox", "append", "release"])
async def test_an_answer_that_nobody_has_listed_ends_no_worker(harness: Harness, call: str) -> None:
    async with harness.watching() as watcher, harness.hosting("w1"):
        await harness.post(say("first"))
        await watcher.at_rest(1, DEADLINE_SECONDS)
        harness.store.fail(call, "broken reply")
        for runs, text in enumerate(
            ("second", "third"), 2
        ):  # if the first owner were still active, the call would meet the third owner
            await harness.post(say(text))
            with anyio.fail_after(DEADLINE_SECONDS):
                while watcher.runs_ended < runs or not watcher.state or not watcher.state.is_at_rest:
                    # the chat of an actor that failed waits until its lease expires
                    harness.store.clock.now_ms += FAST.lease_ms
                    await anyio.sleep(0.02)
    users = [text for role, text in watcher.messages if role == "user"]
    assert users == ["first", "second", "third"]
