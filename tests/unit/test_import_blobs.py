"""The check of large blobs accepts and refuses the same blobs as decoding a whole blob."""

import base64
import hashlib
import os

import msgspec
import pytest

from threadcast.chat.exports import BlobLine, blob_line
from threadcast.chat.import_blobs import begins_as_blob, check_large_blob
from threadcast_protocol.wire.blobs import Blob
from threadcast_protocol.wire.errors import BadRequest


def _line(data: bytes) -> bytes:
    return blob_line(Blob(hashlib.sha256(data).hexdigest(), "text/plain", data))


@pytest.mark.parametrize("size", [0, 1, 2, 3, 196_607, 196_608, 196_609, 1_000_000])
def test_a_blob_of_any_size_has_its_hash(size: int) -> None:
    data = os.urandom(size)
    line = _line(data)
    assert begins_as_blob(line[:64])
    assert check_large_blob(line).hash == hashlib.sha256(data).hexdigest()
    assert msgspec.json.decode(line, type=BlobLine).data == data


@pytest.mark.parametrize(
    ("old", "new", "path"),
    [
        (b'"data":"', b'"data":"\\/', "/data"),
        (b'"data":"', b'"data":"AAA=', "/data"),
        (b'"data":"', b'"data":" ', "/data"),
        (b'"data":"', b'"data":"AAAA', "/hash"),
        (b'"data":"', b'"data":null,"more":"', "/data"),
        (b'"data":"', b'"date":"', ""),
    ],
)
def test_wrong_data_is_refused_with_its_place(old: bytes, new: bytes, path: str) -> None:
    with pytest.raises(BadRequest) as refused:
        check_large_blob(_line(b"x" * 300_000).replace(old, new))
    assert refused.value.path == path


def test_only_lines_that_begin_with_their_type_begin_as_blobs() -> None:
    assert begins_as_blob(b' { "type" : "blob", ')
    assert not begins_as_blob(b'{"hash":"0","type":"blob"}')
    assert not begins_as_blob(b'{"type":"blobs"}')
    assert not begins_as_blob(base64.b64encode(b"blob"))
