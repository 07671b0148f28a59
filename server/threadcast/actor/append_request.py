"""Makes the append of an entry: the entry, its head with the digest, and the fields for the index of chats. Pure.

`entry_append` makes the append of any entry; `text_append` makes the append of an entry with text alone and needs no
builder, since nearly all entries of an answer contain only text. The writer sends both.
"""

import hashlib
from typing import NamedTuple

from msgspec.structs import replace

from threadcast.actor.checkpoint_policy import CheckpointPolicy
from threadcast.actor.run_slots import rank_of
from threadcast.chat.entries import FORMAT_VERSION
from threadcast.chat.entry_builder import EntryBuilder
from threadcast.chat.entry_codec import encode_state
from threadcast.chat.owner_state import OwnerState
from threadcast.store.bounds import EMPTY_CHAT_TTL_SECONDS, TEMPORARY_CHAT_TTL_SECONDS, TEMPORARY_RUN_TTL_SECONDS
from threadcast.store.ports import AppendRequest, InboxEntry
from threadcast_protocol.fold.reducer import with_ops
from threadcast_protocol.framing.codec import encode
from threadcast_protocol.wire.blobs import blob_hashes
from threadcast_protocol.wire.deltas import AppendContent, AppendReasoning, DeltaOp
from threadcast_protocol.wire.events import StreamDelta
from threadcast_protocol.wire.ids import EntryId

__all__ = ["Meta", "Prepared", "entry_append", "is_indexed", "text_append"]

Meta = tuple[tuple[str, str], ...]


class Prepared(NamedTuple):
    """An append, the id of its entry, and the state after it. The request is immutable, so that a repetition sends the
    same bytes (DISPATCH trap 16)."""

    request: AppendRequest
    entry_id: EntryId
    after: OwnerState


def entry_append(
    before: OwnerState,
    last: EntryId,
    builder: EntryBuilder,
    consumed: tuple[InboxEntry, ...],
    *,
    worker: str,
    owner: str,
    meta_before: Meta,
    policy: CheckpointPolicy,
) -> Prepared:
    """Return the append of the entry that `builder` holds. `last` is the id of the entry at the head of `before`;
    `meta_before` is the meta that the store has, or () if this meta is unknown."""
    events = encode(builder.events)
    facts = encode(builder.facts) if builder.facts else b""
    acks = encode(builder.acks) if builder.acks else b""
    entry_id = EntryId(last.epoch, last.n + 1)
    head = f"{entry_id} {_digest(before.head, events, facts, worker)} {before.position + len(builder.events)}"
    after = builder.as_committed(head, entry_id.epoch)
    is_due = policy.is_due(len(events) + len(facts), is_importing=after.private.importing is not None)
    checkpoint = encode_state(after) if is_due else None
    meta = () if after.private.importing else _meta_of(after)
    expire_seconds = _expiry_of(after)
    is_kept_now = expire_seconds is None and _expiry_of(before) is not None
    request = AppendRequest(
        chat_id=before.chat_id,
        expected=before.head,
        head=head,
        version=FORMAT_VERSION,
        events=events,
        facts=facts,
        acks=acks,
        consumed=tuple((entry.inbox_id, entry.request_id) for entry in consumed),
        checkpoint=checkpoint,
        checkpoint_version=after.version,
        trim=policy.trim_before() if is_due else None,
        meta=meta if meta != meta_before or is_kept_now else (),
        lifetime="persist" if is_kept_now else "" if expire_seconds is None else "expire",
        expire_seconds=expire_seconds or 0,
        owner=owner,
        parent=_parent_of(after),
        blobs=blob_hashes(events, facts),
    )
    return Prepared(request, entry_id, after)


def is_indexed(state: OwnerState) -> bool:
    """Return whether the store already keeps and lists the chat, so that appending text changes only the log."""
    return state.private.importing is None and _expiry_of(state) is None


def text_append(
    before: OwnerState,
    last: EntryId,
    text: AppendContent | AppendReasoning,
    *,
    worker: str,
    owner: str,
    policy: CheckpointPolicy,
) -> Prepared | None:
    """Return the same append as `entry_append` for an entry that only adds `text` to the open answer. The chat of
    `before` must be indexed, and the store must have its meta. Returns None if there is no open answer, a checkpoint is
    due, or the text may refer to a blob."""
    draft = before.draft
    if draft is None:
        return None
    ops: list[DeltaOp] = [text]
    events = encode([StreamDelta(draft.message.message_id, ops)])
    if b"blob" in events or policy.is_due(len(events)):
        return None
    epoch, n = last
    head = f"{epoch}-{n + 1} {_digest(before.head, events, b'', worker)} {before.position + 1}"
    after = replace(
        before,
        draft=with_ops(draft, ops),
        head=head,
        version=max(before.version, FORMAT_VERSION),
        epoch=epoch,
        position=before.position + 1,
    )
    request = AppendRequest(
        chat_id=before.chat_id,
        expected=before.head,
        head=head,
        version=FORMAT_VERSION,
        events=events,
        checkpoint_version=after.version,
        owner=owner,
        parent=_parent_of(after),
    )
    return Prepared(request, EntryId(epoch, n + 1), after)


def _digest(before: str, events: bytes, facts: bytes, worker: str) -> str:
    """Return a digest of 8 bytes over the previous head, the payload and the worker, so that the digests form a chain
    (DISPATCH §3)."""
    chain = b"\0".join((before.encode(), events, facts, worker.encode()))
    return hashlib.blake2b(chain, digest_size=8).hexdigest()


def _meta_of(state: OwnerState) -> Meta:
    """Return the fields that lists and refusals need without reading the log."""
    return (
        ("state", "paused" if state.runtime.pause_reasons else state.runtime.state),  # also if a tool asks a question
        ("title", state.thread.title),
        ("model", state.thread.model),
        ("mode", state.thread.mode),
        ("message_count", str(len(state.path))),
        ("queue", str(state.runtime.queue_size)),
        ("waits", rank_of(state)),
        *((("parent", parent),) if (parent := _parent_of(state)) else ()),
    )


def _expiry_of(state: OwnerState) -> int | None:
    """Return the seconds after which an unlisted chat is deleted if it does not change; None for a listed chat. Chats
    without messages, chats whose import is not complete, and temporary chats are unlisted."""
    if not state.nodes or state.private.importing:
        return EMPTY_CHAT_TTL_SECONDS
    if not state.thread.temporary:
        return None
    private = state.private
    is_open = private.run is not None or private.queue or private.relations.running or private.relations.outbox
    return TEMPORARY_RUN_TTL_SECONDS if is_open else TEMPORARY_CHAT_TTL_SECONDS


def _parent_of(state: OwnerState) -> str:
    """Return the parent's chat id by the server's own facts, since clients may set any `parent_id` in the thread."""
    parent = state.private.relations.parent
    return parent.chat_id if parent is not None else ""
