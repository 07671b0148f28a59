"""A store of three nodes: clients work on it, a slot moves under load, and a node is lost and comes back."""

from collections.abc import Iterator
from contextlib import AsyncExitStack
from functools import partial

import anyio
import anyio.to_thread
import pytest

from tests.failover.cluster_harness import ClusterHarness, cluster_harness
from tests.support.cluster import running_cluster
from tests.support.reader import Watcher, watching
from tests.support.server import DEADLINE_SECONDS, command, user_message
from tests.support.store import BINARIES
from threadcast.console.conformance.player import play
from threadcast.console.conformance.target import Target
from threadcast.console.conformance.transcripts import load, transcripts_directory
from threadcast.store.redis.keys import Keys

pytestmark = [pytest.mark.anyio, pytest.mark.slow(4)]

TRANSCRIPTS = {transcript.name: transcript for transcript in load(transcripts_directory())}

PLAYED = (
    "plain-turn",
    "tool-calls-in-order",
    "abort-keeps",
    "branch-from-chat",  # two chats in two slots
    "delete",
    "image-attachment",
    "edit-user-and-regenerate",
    "list-and-read",  # chats of all slots
    "approval-remembered",
    "queue-merged",
    "prefer-wait",
)
"""One transcript of each kind: transcripts that read, write or wait, and transcripts that use several chats."""


@pytest.fixture(scope="module", params=[name for name, binary in BINARIES.items() if binary])
def harness(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterHarness]:
    base = tmp_path_factory.mktemp(request.param)
    with running_cluster(base, binary=request.param) as nodes, cluster_harness(nodes, base) as opened:
        yield opened


@pytest.mark.parametrize("harness", ["valkey"], indirect=True)
@pytest.mark.parametrize("name", PLAYED)
async def test_on_a_cluster_a_client_sees_what_the_transcript_says(harness: ClusterHarness, name: str) -> None:
    async with Target(harness.url) as target:
        await target.look()
        result = await play(target, TRANSCRIPTS[name])
    assert (result.outcome, result.reasons) == ("passed", [])


async def test_a_slot_that_moves_while_its_chats_are_answered_loses_and_repeats_nothing(
    harness: ClusterHarness,
) -> None:
    source, target, _ = harness.nodes.primaries
    keys = Keys(16)
    first = harness.chats(source, 1, "moving")[0]
    bucket = keys.bucket_of(first)
    moving = [f"moving-{n}" for n in range(200) if keys.bucket_of(f"moving-{n}") == bucket][:4]
    staying = harness.chats(target, 2, "staying")
    async with AsyncExitStack() as stack:
        watchers = {
            chat_id: await stack.enter_async_context(watching(harness.url, chat_id)) for chat_id in (*moving, *staying)
        }
        for chat_id in watchers:
            await harness.post(chat_id, user_message("a", "write", params={"model": "demo/essay?words=150&rate=60"}))
        for watcher in watchers.values():
            await watcher.until(lambda w: w.types().count("stream_delta") > 2)
        async with anyio.create_task_group() as tasks:
            for chat_id in watchers:
                tasks.start_soon(harness.post, chat_id, user_message("b", "and more"))
            keys_moved = await anyio.to_thread.run_sync(
                partial(harness.nodes.move_slot, keys.due(bucket), source, target)
            )
        assert keys_moved > 10
        assert harness.nodes.owner_of(keys.due(bucket)) is target
        for chat_id in watchers:
            await harness.post(chat_id, user_message("c", "the end"))
        for chat_id, watcher in watchers.items():
            await watcher.until(partial(_has_said, texts=["write", "and more", "the end"]))
            async with watching(harness.url, chat_id) as late:
                assert late.snapshot == watcher.snapshot
            essay = next(text for role, text in watcher.messages if role == "assistant")
            assert len(essay.split()) == 150


def _has_said(watcher: Watcher, texts: list[str]) -> bool:
    """Return whether the chat rests and holds each of the user's texts once, in merged or separate messages."""
    state = watcher.state
    if state is None or not state.is_at_rest or state.runtime.queue_size:
        return False
    said = "\n".join(text for role, text in watcher.messages if role == "user")
    assert all(said.count(text) <= 1 for text in texts), said
    return all(text in said for text in texts)


async def test_without_a_node_its_chats_are_refused_with_the_reason_the_others_go_on_and_all_work_when_it_is_back(
    harness: ClusterHarness,
) -> None:
    lost, *others = harness.nodes.primaries
    away = harness.chats(lost, 2, "away")
    here = [chat_id for node in others for chat_id in harness.chats(node, 2, "here")]
    for chat_id in (*away, *here):
        await harness.post(chat_id, user_message("a", "before"))
    lost.kill()
    try:
        for chat_id in away:
            refused = await command(harness.url, chat_id, user_message("b", "are you there?"))
            assert refused.status_code == 503
            assert lost.name in refused.json()["error"]
            assert refused.headers["retry-after"]
        for chat_id in here:
            async with watching(harness.url, chat_id) as watcher:
                await harness.post(chat_id, user_message("b", "go on"))
                await watcher.until(partial(_has_said, texts=["before", "go on"]))
        status, said = await harness.readiness()
        assert (status, said["store"]) == (200, "partly")
        assert lost.name in str(said["away"])
    finally:
        lost.start()
    for chat_id in away:
        await harness.post(chat_id, user_message("b", "are you there?"))
        async with watching(harness.url, chat_id) as watcher:
            await watcher.until(partial(_has_said, texts=["before", "are you there?"]))
    with anyio.fail_after(DEADLINE_SECONDS):
        while (said := (await harness.readiness())[1])["store"] != "ok":
            await anyio.sleep(0.1)
    assert sorted(said["nodes"]) == sorted(node.name for node in harness.nodes.primaries)
    assert "away" not in said
