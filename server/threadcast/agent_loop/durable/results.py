"""Stores the results of operations: small results in the journal, and large results as private blobs."""

import hashlib
import os
from typing import Any

from msgspec.structs import replace

from threadcast.agent_loop.durable.execution import Execution
from threadcast.chat.journal import Operation
from threadcast.custom_agents.errors import OutcomeUnknown, StepFailed
from threadcast.custom_agents.values import decoded, encoded
from threadcast_protocol.wire.blobs import BLOB_MAX_BYTES, PRIVATE_MIME, Blob

__all__ = ["INLINE_MAX_BYTES", "ended_with", "value_of"]

INLINE_MAX_BYTES = 1_000_000
"""The maximum bytes of a result in the journal. Larger results are stored as private blobs."""

SALT_BYTES = 16
"""The number of random bytes before the content of a private blob. Because of these bytes, the hash of the blob cannot
be guessed."""


async def ended_with(execution: Execution, begun: Operation, value: object, wanted: Any) -> Operation:
    """Return the record of an operation that returned `value`. Raises an error if the value cannot be stored, or cannot
    be decoded as the type `wanted`."""
    text = encoded(value)
    decoded(text, wanted)
    if len(text) <= INLINE_MAX_BYTES // 4 or len(text.encode()) <= INLINE_MAX_BYTES:
        return replace(begun, status="done", value=text, blob=None)
    data = os.urandom(SALT_BYTES) + text.encode()
    if len(data) > BLOB_MAX_BYTES:
        raise ValueError(f"the result has more than {BLOB_MAX_BYTES:,} bytes as JSON")
    blob = Blob(hashlib.sha256(data).hexdigest(), PRIVATE_MIME, data)
    if not await execution.chat.put_blob(blob):
        raise OSError("the result could not be stored: the chat has as many files as it may have")
    return replace(begun, status="done", value=None, blob=blob.hash)


async def value_of(execution: Execution, found: Operation, wanted: Any) -> Any:
    """Return the result in the operation's record `found`, decoded as the type `wanted`, or raise the recorded
    error."""
    if found.status == "unknown":
        raise OutcomeUnknown(found.name)
    if found.error is not None:
        raise StepFailed(found.error.kind, found.error.message, found.name)
    if found.blob is None:
        return decoded(found.value or "null", wanted)
    blob = await execution.chat.fetch_blob(found.blob)
    if blob is None:
        raise StepFailed("Lost", f"the result of {found.name!r} is no longer stored", found.name)
    return decoded(blob.data[SALT_BYTES:].decode(), wanted)
