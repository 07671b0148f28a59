"""Blobs from one chat of an owner to another one of theirs, for a branch (PROTOCOL §10).

The chats may lie in different slots, so the bytes pass through here, one blob at a time. The copies stay for a day and
then for as long as the entry that refers to them: copy first, append afterwards. References in what is copied are
turned by `protocol.blobs.move_to`.
"""

from collections.abc import Iterable

import structlog

from protocol.blobs import BLOB_TTL_SECONDS, blob_hashes
from protocol.codec import encode
from protocol.state import ChatState
from protocol.tree import way_to
from server.store.port import BlobOutcome, BlobPut, Store

__all__ = ["copy_blobs", "copy_way"]

_log = structlog.get_logger()


async def copy_way(store: Store, source: ChatState, up_to_message_id: str, target: str, owner: str) -> None:
    """What the messages from the root of `source` to that one refer to. Raises Unavailable, safe to repeat.

    A blob that is gone, or that would be more than `target` may hold, stays out: its reference then leads nowhere, and
    a model reads a note in its place.
    """
    way = [source.nodes[key] for key in way_to(source.nodes, up_to_message_id)]
    hashes = blob_hashes(encode(way))
    copied = await copy_blobs(store, source.chat_id, target, owner, hashes)
    if len(copied) < len(set(hashes)):
        _log.warning(
            "branch.blobs_missing", chat_id=target, source_chat_id=source.chat_id, count=len(hashes) - len(copied)
        )


async def copy_blobs(store: Store, source: str, target: str, owner: str, hashes: Iterable[str]) -> list[str]:
    """The hashes that `target` now holds; one that is gone, foreign, or one too many is not among them.

    Raises:
        Unavailable: safe to repeat.
    """
    wanted = list(dict.fromkeys(hashes))
    copied = list(await store.hold_blobs(target, owner, wanted, BLOB_TTL_SECONDS))
    for hash in wanted:
        if hash in copied:
            continue
        blob = await store.get_blob(source, owner, hash)
        if blob is None:
            continue
        request = BlobPut(chat_id=target, owner=owner, blob=blob, ttl_seconds=BLOB_TTL_SECONDS)
        if await store.put_blob(request) is BlobOutcome.KEPT:
            copied.append(hash)
    return copied
