"""The intact beginning of an append-only file is found wherever the file is cut, and whatever bytes follow."""

import tempfile
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from threadcast.store.embedded import aof
from threadcast.store.embedded.aof import BadManifest, Manifest, Scan, parse_manifest, scan


def record(*words: bytes) -> bytes:
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in words)


NOTE = b"#TS:1795239177\r\n"
VALUES = st.binary(max_size=40).filter(lambda value: b"\r\n*" not in value and not value.startswith(b"*"))
COMMANDS = st.builds(
    lambda word, values: record(word, *values), st.sampled_from([b"SET", b"xadd"]), st.lists(VALUES, max_size=3)
)
TRANSACTIONS = st.lists(COMMANDS, max_size=3).map(lambda inner: b"".join([record(b"MULTI"), *inner, record(b"EXEC")]))
RECORDS = st.lists(st.one_of(COMMANDS, TRANSACTIONS, st.just(NOTE)), max_size=6)


def scanned(data: bytes) -> Scan:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "file"
        path.write_bytes(data)
        return scan(path)


def ends(records: list[bytes]) -> list[int]:
    return [len(b"".join(records[:count])) for count in range(len(records) + 1)]


@given(RECORDS)
def test_a_whole_file_is_whole(records: list[bytes]) -> None:
    data = b"".join(records)
    assert scanned(data) == Scan(len(data), len(data))


@given(RECORDS, st.data())
def test_a_cut_anywhere_leaves_the_records_before_it(records: list[bytes], data: st.DataObject) -> None:
    whole = b"".join(records)
    at = data.draw(st.integers(0, len(whole)))
    found = scanned(whole[:at])
    assert found.whole_bytes == max(end for end in ends(records) if end <= at)
    assert (found.fault == "") == (found.whole_bytes == at)
    assert found.resumes_at is None


@given(RECORDS, st.one_of(st.binary(min_size=1, max_size=60), st.integers(1, 5_000).map(bytes)))
def test_what_follows_the_last_record_and_is_none_is_found_to_be_the_end(records: list[bytes], junk: bytes) -> None:
    data = b"".join(records)
    found = scanned(data + junk)
    if junk[:1] not in (b"*", b"#"):
        assert (found.whole_bytes, found.resumes_at) == (len(data), None)
        assert f"at byte {len(data)}" in found.fault


@given(st.lists(COMMANDS, min_size=2, max_size=6), st.data())
def test_damage_before_a_whole_record_is_told_from_a_bad_end(records: list[bytes], data: st.DataObject) -> None:
    whole = bytearray(b"".join(records))
    bad = data.draw(st.integers(0, len(records) - 2))
    start = ends(records)[bad]
    whole[start : start + 4] = bytes(4)
    found = scanned(bytes(whole))
    assert found.whole_bytes == start
    assert found.resumes_at == ends(records)[bad + 1]


def test_a_length_that_leads_past_the_end_does_not_hide_what_follows() -> None:
    good = record(b"SET", b"a", b"1")
    bad = good.replace(b"$1\r\n1", b"$400000000\r\n1")
    assert scanned(good + bad + good) == Scan(
        len(good),
        len(good + bad + good),
        f"a command with a torn argument at byte {len(good)}",
        len(good + bad),
    )


@pytest.mark.parametrize(
    "data",
    [
        record(b"EXEC"),
        record(b"MULTI") * 2,
        record(b"\0\0"),
        record(b"x" * 65),
        b"*0\r\n",
        b"*-1\r\n",
        b"$3\r\nSET\r\n",
    ],
)
def test_what_no_server_writes_is_a_fault(data: bytes) -> None:
    found = scanned(record(b"SET", b"a", b"1") + data)
    assert found.whole_bytes == 27 and found.fault


def test_a_record_across_two_pieces_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aof, "PIECE_BYTES", 16)
    good = record(b"SET", b"a", b"1")
    for gap in range(40):
        found = scanned(good + bytes(gap + 1) + b"\r\n" + good)
        assert (found.whole_bytes, found.resumes_at) == (len(good), len(good) + gap + 3)


def test_a_file_of_gigabytes_is_read_in_pieces(tmp_path: Path) -> None:
    path = tmp_path / "file"
    good = record(b"SET", b"a", b"1")
    with path.open("wb") as file:  # with holes, so that the file takes no disk space
        for _ in range(8):
            file.write(b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$500000000\r\n")
            file.seek(500_000_000, 1)
            file.write(b"\r\n" + good)
    assert scan(path) == Scan(path.stat().st_size, path.stat().st_size)


@pytest.mark.parametrize("fake", [record(b"PING"), record(b"SET", b"a", b"1") * 3], ids=["one", "several"])
def test_records_in_a_blob_that_is_torn_are_not_taken_for_the_stores_own(fake: bytes) -> None:
    good = record(b"SET", b"a", b"1")
    blob = b"before\r\n" + fake + b"after" * 100
    torn = record(b"HSET", b"key", b"m", b"text/plain", b"d", blob)[:-300]
    found = scanned(good + torn + bytes(1_000))
    assert (found.whole_bytes, found.resumes_at) == (len(good), None)
    found = scanned(good + torn + bytes(1_000) + b"\r\n" + good)
    assert found.resumes_at == len(good + torn) + 1_002, "what follows behind the blob is found all the same"


@pytest.mark.parametrize(
    ("line", "count"),
    [
        (b"\r\n*1\r\n$4\r\nPI G", 200_000),
        (b"\r\n*2\r\n$3\r\nSET\r\n$2000003\r\n", 200_000),
    ],
    ids=["short", "leading far away"],
)
def test_many_beginnings_of_records_are_tried_in_bounded_time(line: bytes, count: int) -> None:
    data = b"\0" + line * count + bytes(3_000_000)
    began = time.process_time()
    assert scanned(data).resumes_at is None
    assert time.process_time() - began < 30


def test_beginnings_that_share_their_arguments_are_given_up_and_left_to_a_person() -> None:
    # Each record begins inside an argument of the record before it, and all continue with the same arguments to the
    # end.
    line = b"$13\r\nabcd\r\n*999999\r\n$1\r\nA\r\n"
    data = b"\0" + line * 5_000
    began = time.process_time()
    assert scanned(data).resumes_at is not None
    assert time.process_time() - began < 30


def test_a_manifest_is_read_as_the_server_writes_it() -> None:
    text = (
        "file appendonly.aof.2.base.rdb seq 2 type b\n"
        "file appendonly.aof.1.incr.aof seq 1 type h\n"
        "file appendonly.aof.2.incr.aof seq 2 type i startoffset 0\n"
        "file appendonly.aof.3.incr.aof seq 3 type i\n"
    )
    found = parse_manifest(text)
    assert found == Manifest("appendonly.aof.2.base.rdb", ("appendonly.aof.2.incr.aof", "appendonly.aof.3.incr.aof"))
    assert parse_manifest(found.text()) == found
    assert found.text().splitlines()[2] == "file appendonly.aof.3.incr.aof seq 3 type i"


@pytest.mark.parametrize(
    "text", ["", "\0" * 80, "file ../../x seq 1 type i", "file a seq 0 type i", "file a seq 1 type x"]
)
def test_what_is_no_manifest_is_refused(text: str) -> None:
    with pytest.raises(BadManifest):
        parse_manifest(text)
