"""The store's pure pieces: keys, checkpoints, a listener's queue, the table of foreign errors, the scripts' form."""

import random
from contextlib import suppress
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis import exceptions as redis_errors

from threadcast.chat.entries import FORMAT_VERSION
from threadcast.store.bounds import WHOLE_MAX_BYTES
from threadcast.store.ports import LogMessage
from threadcast.store.redis import checkpoint
from threadcast.store.redis.connection import AccessRefused, explain_error
from threadcast.store.redis.keys import Keys
from threadcast.store.redis.listener import QUEUE_MAX_BYTES, QUEUE_MAX_MESSAGES, Listener
from threadcast.store.redis.log_messages import parse_log_message
from threadcast.store.redis.scripts import SCRIPTS
from threadcast_protocol.wire.errors import Internal, StoreFull, ThreadcastError, Unavailable

pytestmark = pytest.mark.anyio


@given(st.text("abcXYZ019_-", min_size=1, max_size=128))
def test_all_keys_of_a_chat_share_the_hash_tag_of_its_bucket(chat_id: str) -> None:
    keys = Keys(16).chat(chat_id)
    tag = b"{b%02d}" % (crc32(chat_id.encode()) % 16)
    names = (keys.log, keys.head, keys.snap, keys.inbox, keys.meta, keys.seen, keys.seen_old, keys.due, keys.own)
    channels = (keys.log_channel, keys.inbox_signal_prefix, keys.feed_channel("ann"))
    assert all(name.startswith(b"tc:" + tag + b":") for name in (*names, keys.bell, keys.chats("ann"), *channels))
    assert len(set(names)) == len(names)


def test_a_database_has_channels_of_its_own_beside_keys_that_it_tells_apart_itself() -> None:
    def channels(keys: Keys) -> set[bytes]:
        chat = keys.chat("a")
        several = {*keys.feed_channels("ann"), *keys.inbox_signal_channels("w"), keys.topic_channel("t")}
        assert {chat.feed_channel("ann"), chat.inbox_signal_prefix + b"w"} < several
        return several | {chat.log_channel}

    first, fourth = Keys(16), Keys(16, 3)
    assert first.chat("a").log == fourth.chat("a").log
    assert not channels(first) & channels(fourth)
    assert fourth.chat("a").log_channel.startswith(first.chat("a").prefix), "beside the keys, in one Cluster slot"


@pytest.mark.parametrize("size", [0, 1, 256 * 1_024, 256 * 1_024 + 1])
async def test_checkpoint_comes_back_as_it_was_and_is_the_same_each_time(size: int) -> None:
    state = b"0123456789abcdef" * (size // 16 + 1)
    stored = await checkpoint.compose("7-3 00000000000000aa 12", 2, state[:size])
    assert stored == await checkpoint.compose("7-3 00000000000000aa 12", 2, state[:size])
    assert stored.snap.startswith(b"7-3 00000000000000aa 12 2\n") and not stored.slices
    assert checkpoint.sliced(stored.snap) is None
    assert await checkpoint.split(stored.snap) == ("7-3 00000000000000aa 12", 2, state[:size])


async def test_a_large_checkpoint_has_slices_and_looks_newer_to_versions_that_know_none() -> None:
    state = random.Random(1).randbytes(WHOLE_MAX_BYTES + 1)
    head = "7-3 00000000000000aa 12"
    stored = await checkpoint.compose(head, 2, state)
    known = checkpoint.sliced(stored.snap)
    assert known is not None and known.version == 2 and known.size_bytes == len(stored.slices) > WHOLE_MAX_BYTES
    assert known.line.startswith(f"{head} ") and len(known.line) < 128, "the scripts compare the first 128 bytes"
    as_before = await checkpoint.split(stored.snap)  # earlier versions, which know no slices, read it this way
    assert as_before is not None and as_before[0] == head and as_before[1] > FORMAT_VERSION + 1_000 and not as_before[2]


@given(st.binary())
async def test_no_bytes_make_the_slices_fail_otherwise_than_with_our_error(data: bytes) -> None:
    with suppress(Internal):
        checkpoint.sliced(b"7-3 00000000000000aa 12 %d\n" % checkpoint.SLICED_VERSION + data)


@given(st.binary())
async def test_no_bytes_make_a_checkpoint_fail_otherwise_than_with_our_error(stored: bytes) -> None:
    with suppress(Internal):
        await checkpoint.split(stored)


async def test_listener_over_its_bounds_drops_everything_and_says_so() -> None:
    many, large = Listener(()), Listener(())
    for _ in range(QUEUE_MAX_MESSAGES + 1):
        many.offer(b"x")
    many.offer(b"after")
    assert [await anext(many), await anext(many), many.dropped_count] == [None, b"after", QUEUE_MAX_MESSAGES + 1]
    large.offer(b"x" * QUEUE_MAX_BYTES)
    large.offer(b"y")
    assert [await anext(large), large.dropped_count] == [None, 2]
    large.offer(b"z" * QUEUE_MAX_BYTES)
    assert await anext(large) == b"z" * QUEUE_MAX_BYTES, "what was read makes room"


async def test_a_message_is_offered_at_once_only_while_none_is_queued_before_it() -> None:
    listener, taken = Listener(()), list[bytes]()

    def parsed(payload: bytes) -> LogMessage:
        return LogMessage(kind="entry", chat_id="c1", head=payload.decode())

    def takes_small(message: LogMessage) -> bool:
        if len(message.head) == 1:
            taken.append(message.head.encode())
        return len(message.head) == 1

    listener.first_ask(takes_small, parsed)
    for payload in (b"a", b"large", b"b", None, b"c"):
        listener.offer(payload)
    assert taken == [b"a"]
    assert [await anext(listener) for _ in range(4)] == [b"large", b"b", None, b"c"]
    listener.offer(None)
    assert await anext(listener) is None, "what may have been missed is told, never offered"
    listener.offer(b"d")
    assert taken == [b"a", b"d"]


@given(st.binary() | st.text().map(str.encode))
def test_any_bytes_on_a_channel_are_a_log_message(payload: bytes) -> None:
    assert parse_log_message("c1", payload).chat_id == "c1"


@pytest.mark.parametrize(
    ("wrong", "kind", "words"),
    [
        (redis_errors.OutOfMemoryError("command not allowed"), StoreFull, "memory is full"),
        (redis_errors.ReadOnlyError("You can't write"), Unavailable, "read-only"),
        (redis_errors.BusyLoadingError("loading"), Unavailable, "loading"),
        (redis_errors.ResponseError("MISCONF Errors writing to the AOF file"), Unavailable, "disk"),
        (redis_errors.ResponseError("NOREPLICAS Not enough good replicas"), Unavailable, "replicas"),
        (redis_errors.ResponseError("BUSY Redis is busy"), Unavailable, "busy"),
        (redis_errors.AuthenticationError("WRONGPASS"), AccessRefused, "password"),
        (redis_errors.NoPermissionError("this user"), AccessRefused, "may not"),
        (redis_errors.ConnectionError("refused"), Unavailable, "cannot be reached"),
        (redis_errors.TimeoutError("slow"), Unavailable, "does not answer"),
        (TimeoutError(), Unavailable, "does not answer"),
        (ConnectionResetError(), Unavailable, "cannot be reached"),
        (redis_errors.ResponseError("WRONGTYPE Operation against a key"), Internal, "WRONGTYPE"),
    ],
)
def test_foreign_errors_become_ours(wrong: Exception, kind: type[ThreadcastError], words: str) -> None:
    ours = explain_error(wrong)
    assert type(ours) is kind
    assert words in ours.message


def test_every_script_opens_with_its_engine_and_says_what_a_repeat_does() -> None:
    leaving = {
        "beat",
        "release",
        "compact",
        "handover",
        "delete",
        "dead_drop",
        "blob_drop",
        "quarantine",
        "allowance_return",
        "erase_done",
        "account_measure",
        "end_leases",
        "silent_owners",
    }
    for name, script in SCRIPTS.items():
        first, second, *_ = script.source.decode().splitlines()
        reading = name in {"load", "check_buckets", "snap_slice", "inbox", "blob_get", "account"}
        flags = " flags=no-writes" if reading else " flags=allow-oom" if name in leaving else ""
        assert (first, second.startswith(f"-- {name}: ")) == (f"#!lua{flags}", True)
        assert "-- Repeat: " in script.source.decode() or name == "writable"
