"""Copies blobs between two chats of one owner, for a branch (PROTOCOL §10).

The chats may have different slots of a Cluster, so no script can copy their blobs. This process reads and writes the
blobs one at a time. A copy expires after a day unless an entry refers to it, so the caller copies first and appends
afterwards. `threadcast_protocol.wire.blobs.move_to` rewrites the references in the copied messages.
"""

from collections.abc import Iterable

import structlog

from threadcast.chat.owner_state import OwnerState
from threadcast.store.ports import BlobOutcome, BlobPut, Blobs
from threadcast_protocol.fold.tree import way_to
from threadcast_protocol.framing.codec import encode
from threadcast_protocol.wire.blobs import BLOB_TTL_SECONDS, PRIVATE_MIME, blob_hashes

__all__ = ["copy_blobs", "copy_way"]

_log = structlog.get_logger()


async def copy_way(store: Blobs, source: OwnerState, up_to_message_id: str, target: str, owner: str) -> None:
    """Copy the blobs that the messages from the root of `source` to `up_to_message_id` refer to.

    A blob is not copied if it no longer exists, or if `target` has no room for the blob. The reference to this blob
    remains in the copied message, and a model reads a note in place of the blob. Raises Unavailable; the call is safe
    to repeat.
    """
    way = [source.nodes[key] for key in way_to(source.nodes, up_to_message_id)]
    hashes = blob_hashes(encode(way))
    copied = await copy_blobs(store, source.chat_id, target, owner, hashes)
    if len(copied) < len(set(hashes)):
        _log.warning(
            "branch.blobs_missing", chat_id=target, source_chat_id=source.chat_id, count=len(hashes) - len(copied)
        )


async def copy_blobs(store: Blobs, source: str, target: str, owner: str, hashes: Iterable[str]) -> list[str]:
    """Copy the blobs, and return the hashes of the blobs that `target` has now. Blobs that no longer exist, belong to
    another owner, are read only by the server (PRIVATE_MIME), or exceed the limit are not copied.

    Raises:
        Unavailable: the store does not answer; the call is safe to repeat.
    """
    wanted = list(dict.fromkeys(hashes))
    copied = list(await store.hold_blobs(target, owner, wanted, BLOB_TTL_SECONDS))
    for hash in wanted:
        if hash in copied:
            continue
        blob = await store.get_blob(source, owner, hash)
        if blob is None or blob.mime == PRIVATE_MIME:
            continue
        request = BlobPut(chat_id=target, owner=owner, blob=blob, ttl_seconds=BLOB_TTL_SECONDS)
        if await store.put_blob(request) is BlobOutcome.KEPT:
            copied.append(hash)
    return copied
