"""A stream with data in place of references: lines between blocks are sent at once, and blocks when they are
complete."""

import pytest
from starlette.types import Message

from tests.unit.pictures import PNG, hash_of
from threadcast.api.inlining import InliningSend
from threadcast.store.memory.store import MemoryStore
from threadcast.store.ports import BlobPut
from threadcast_protocol.framing.sse import heartbeat, retry
from threadcast_protocol.wire.blobs import Blob, blob_url
from threadcast_protocol.wire.principal import LOCAL

pytestmark = [pytest.mark.anyio, pytest.mark.row("ATT-5", "NET-4")]

BLOCK = b'data: {"chat_id":"c1","seq":"1","type":"x","url":"%b"}\nid: 1-1-1\n\n' % blob_url("c1", hash_of(PNG)).encode()


class Out:
    """The ASGI messages that the application sent."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []

    async def __call__(self, message: Message) -> None:
        self.bodies.append(message["body"])


async def inlining(out: Out) -> InliningSend:
    store = MemoryStore(lambda: 1)
    put = BlobPut(chat_id="c1", owner=LOCAL.id, blob=Blob(hash_of(PNG), "image/png", PNG), ttl_seconds=60)
    await store.put_blob(put)
    return InliningSend(out, store, LOCAL.id)


async def told(send: InliningSend, body: bytes, *, is_last: bool = False) -> None:
    await send({"type": "http.response.body", "body": body, "more_body": not is_last})


async def test_a_heartbeat_waits_for_no_block() -> None:
    out = Out()
    send = await inlining(out)
    await told(send, heartbeat(1))
    await told(send, retry(500) + heartbeat(2))
    assert out.bodies == [heartbeat(1), retry(500) + heartbeat(2)]
    await told(send, retry(700), is_last=True)
    assert out.bodies[-1] == retry(700)


@pytest.mark.parametrize("cut", range(0, len(BLOCK) + 1, 7))
async def test_a_block_after_a_heartbeat_has_its_data_wherever_it_is_cut(cut: int) -> None:
    out = Out()
    send = await inlining(out)
    for piece in (heartbeat(1) + BLOCK[:cut], BLOCK[cut:] + heartbeat(2), BLOCK):
        await told(send, piece)
    whole = b"".join(out.bodies)
    assert whole.count(b"data:image/png;base64,") == 2 and b"/blobs/" not in whole
    assert whole.startswith(heartbeat(1) + b'data: {"chat_id":"c1"')
    assert b"\nid: 1-1-1\n\n" + heartbeat(2) + b"data: {" in whole
