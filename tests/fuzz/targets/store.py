"""Data in the form of Redis replies: entries, checkpoints, metas, traces. Other programs can write to Redis. Reading
their data must raise `Internal` or fold nothing, and must never raise another exception.
"""

from collections.abc import Coroutine
from random import Random
from typing import TypeVar

import msgspec

from tests.fuzz import corpus
from tests.fuzz.target import Target, held
from threadcast.actor.intake import command_of
from threadcast.chat.entries import RawEntry
from threadcast.chat.entry_codec import encode_state
from threadcast.store.compression import compressed
from threadcast.store.ports import InboxEntry
from threadcast.store.redis import checkpoint
from threadcast.store.redis.chat_meta import META_FIELDS, read_meta
from threadcast.store.redis.log import parse_entry
from threadcast.store.trace_records import decompose
from threadcast_protocol.wire.errors import Internal

__all__ = ["store_targets"]

_T = TypeVar("_T")


def _now(coroutine: Coroutine[object, None, _T]) -> _T | None:
    """Run a decoder without an event loop; returns None if the decoder needs a thread for a large input."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        value: _T = done.value
        return value
    except RuntimeError:  # no running event loop
        return None
    raise AssertionError("it waits")


def _fields(data: bytes) -> list[bytes]:
    return data.split(b"\x1f")


def _entry(data: bytes, random: Random) -> bool:
    entry_id, *flat = _fields(data)
    try:
        entry = parse_entry([entry_id, flat])
    except Internal:
        return False
    held(isinstance(entry, RawEntry) and isinstance(entry.position, int), entry)
    return True


def _checkpoint(data: bytes, random: Random) -> bool:
    try:
        checkpoint.sliced(data)
        found = _now(checkpoint.split(data))
    except Internal:
        return False
    if not found:
        return False
    head, version, state = found
    again = _now(checkpoint.compose(head, version, state)) if head.isascii() else None  # other heads never match
    if again is not None and not again.slices:
        held(_now(checkpoint.split(again.snap)) == found, "a checkpoint has two forms", found)
    return True


def _meta(data: bytes, random: Random) -> bool:
    values = [each.decode("utf-8", "replace") for each in _fields(data)][: len(META_FIELDS)]
    padded = [*values, *[None] * (len(META_FIELDS) - len(values))]
    try:
        return read_meta("c1", padded) is not None
    except Internal:
        return False


def _trace(data: bytes, random: Random) -> bool:
    try:
        msgspec.json.encode(decompose(data))
    except ValueError:
        return False
    return True


def _waiting(data: bytes, random: Random) -> bool:
    principal, _, body = data.partition(b"\x1f")
    command, _ = command_of(InboxEntry("1-0", "r1", principal, body))
    return command is not None


def _flat(entry: RawEntry) -> bytes:
    pairs: list[bytes] = [str(entry.entry_id).encode()]
    _, digest, position = entry.head.split(" ")
    for key, value in (
        ("d", digest),
        ("p", position),
        ("b", entry.before),
        ("t", str(entry.time_ms)),
        ("v", str(entry.version)),
        ("e", entry.events.decode()),
        ("x", entry.facts.decode()),
        ("a", entry.acks.decode()),
        ("f", '["w1","wake"]' if entry.fence else ""),
    ):
        if value:
            pairs += [key.encode(), value.encode()]
    return b"\x1f".join(pairs)


def store_targets() -> list[Target]:
    it = corpus.chat()
    composed = [_now(checkpoint.compose(state.head, 1, encode_state(state))) for state in it.states[1::5]]
    traces = [compressed(b'{"kind":"round","run_id":"r1","a":[1,2]}')]
    metas = ["\x1f".join(("local", "T", "idle", "demo/echo", "agent", "3", "0", "1", "2", "0", "")).encode()]
    principal = b'{"id":"local","roles":["a"],"permissions":["approve"]}'
    waiting = [principal + b"\x1f" + body for body in corpus.inbox_bodies()[:40]]
    return [
        Target("reply-entry", _entry, [_flat(entry) for entry in it.entries]),
        Target("checkpoint", _checkpoint, [each.snap for each in composed if each], weight=2),
        Target("meta", _meta, metas, weight=2),
        Target("trace", _trace, traces, weight=1),
        Target("inbox-entry", _waiting, waiting, weight=2),
    ]
