"""A replica that missed the last writes of its primary replaces it at the same address: readers see which commands were
lost, a command that is posted again takes effect once, and no reader mixes the two histories."""

import time
from functools import partial
from pathlib import Path

import anyio
import pytest
from anyio.abc import TaskStatus

from tests.bars import bar_seconds
from tests.failover.gates import Pair
from tests.failover.harness import LONG, LONG_TEXT, Client, harness, said, settled, told
from tests.support.reader import Watcher, watching
from tests.support.store import StoreServer

pytestmark = [pytest.mark.anyio, pytest.mark.slow(30)]

CHATS = [f"chat-{number}" for number in range(3)]
WINDOW_COMMANDS = 12

NOTICED_SECONDS = 2.0
"""Maximum seconds from the promotion until readers see the history of the new primary."""

DRAIN_SECONDS = 30.0


async def drained(primary: StoreServer) -> None:
    """Wait until no accepted command is in an inbox: a command that is in no chat after that is lost."""
    with anyio.fail_after(DRAIN_SECONDS):
        while any(primary.client.xlen(inbox) for inbox in primary.client.scan_iter("tc:*:inbox")):
            await anyio.sleep(0.02)


async def accepted_after(client: Client, since: float, *, task_status: TaskStatus[list[float]]) -> None:
    """Measure how many seconds after `since` a post is accepted; the task starts with a list, to which it adds the
    result."""
    seconds: list[float] = []
    task_status.started(seconds)
    await client.post("another", "another")
    seconds.append(time.monotonic() - since)


def is_thrown_back(reader: Watcher, snapshots: int) -> bool:
    """Return whether the reader has received more snapshots than this count."""
    return reader.snapshots > snapshots


async def resumed(url: str, chat_id: str, last_id: str) -> Watcher:
    """Return a reader that reconnected with this id, once its first frame has arrived."""
    async with watching(url, chat_id, headers={"Last-Event-ID": last_id}) as reader:
        await reader.until(lambda w: w.frames)
        return reader


@pytest.mark.parametrize("pair", ["redis7"], indirect=True)
async def test_what_a_promotion_lost_is_shown_and_posting_again_makes_it_whole_and_once(
    pair: Pair, tmp_path: Path
) -> None:
    async with harness(pair.url, tmp_path) as product, anyio.create_task_group() as readers:
        url = product.url
        client = Client(url)
        watchers: dict[str, Watcher] = {}

        async def watch(chat_id: str, task_status: TaskStatus[None]) -> None:
            async with watching(url, chat_id) as reader:
                watchers[chat_id] = reader
                task_status.started()
                await anyio.sleep_forever()

        for chat_id in [*CHATS, "long"]:
            await readers.start(watch, chat_id)
        async with anyio.create_task_group() as posts:
            for chat_id in CHATS:
                posts.start_soon(client.post, chat_id, f"kept-{chat_id}")
        for chat_id in CHATS:
            await settled(watchers[chat_id], {f"kept-{chat_id}"})
        await Client(url).post("reference", "write", LONG_TEXT)
        async with watching(url, "reference") as reference:
            await settled(reference, {"write"})
        await client.post("long", "write", LONG)
        await watchers["long"].until(lambda w: w.types().count("stream_delta") > 5)
        await pair.replicated()

        # During the block the primary continues, and the replica receives nothing.
        pair.link.hold()
        in_window: dict[str, set[str]] = {chat_id: set() for chat_id in CHATS}
        async with anyio.create_task_group() as posts:
            for number in range(WINDOW_COMMANDS):
                chat_id = CHATS[number % len(CHATS)]
                in_window[chat_id].add(f"lost-{number}")
                posts.start_soon(client.post, chat_id, f"lost-{number}")
        for chat_id, texts in in_window.items():
            await settled(watchers[chat_id], texts)
        before = {chat_id: (reader.last_id, reader.snapshots) for chat_id, reader in watchers.items()}

        pair.link.cut()
        pair.primary.kill()
        pair.promote()
        promoted_at = time.monotonic()
        accepted = await readers.start(accepted_after, Client(url), promoted_at)
        for chat_id, reader in watchers.items():
            await reader.until(partial(is_thrown_back, snapshots=before[chat_id][1]), bar_seconds(NOTICED_SECONDS))
        noticed_seconds = time.monotonic() - promoted_at
        for chat_id in CHATS:
            assert said(watchers[chat_id]) == [f"kept-{chat_id}"]
            back = await resumed(url, chat_id, before[chat_id][0])
            assert back.snapshots == 1 and back.frames[0]["type"] == "snapshot"
        await drained(pair.replica)
        lost = await client.missing()
        assert lost == set().union(*in_window.values()), "the window lost what was accepted in it, and nothing else"

        statuses = await client.post_all_again()
        for chat_id, texts in in_window.items():
            await settled(watchers[chat_id], texts | {f"kept-{chat_id}"})
        await settled(watchers["long"], {"write"})
        assert await client.missing() == set()
        assert await client.repeated() == set()
        assert statuses == {"accepted": len(lost), "duplicate": len(client.accepted) - len(lost)}
        assert told(watchers["long"]) == told(reference)
        for chat_id, reader in watchers.items():
            # The positions of the lost events exist again by now, with other content.
            back = await resumed(url, chat_id, before[chat_id][0])
            assert back.frames[0]["type"] == "snapshot"
            assert back.snapshot == reader.snapshot
        readers.cancel_scope.cancel()
    print(
        f"\npromotion with a lossy window: {len(client.accepted)} accepted, {len(lost)} lost, 0 after posting again;"
        f" readers noticed within {noticed_seconds:.2f} s, posts accepted after {accepted[0]:.2f} s"
    )
