"""Compressed data is read back from the store unchanged; damaged or oversized data is refused."""

import os

import pytest

from threadcast.store.compression import FIRST_BYTES, compressed, decompressed, decompressed_size

DATA = os.urandom(5_000) + b"a" * 300_000


def test_data_comes_back_and_a_frame_says_its_size() -> None:
    frame = compressed(DATA)
    assert frame.startswith(FIRST_BYTES) and len(frame) < len(DATA)
    assert frame == compressed(DATA), "a repeated append must be recognised as a repeat"
    assert decompressed_size(frame) == len(DATA)
    assert decompressed(frame) == DATA
    assert decompressed(frame, len(DATA)) == DATA


def test_a_frame_that_holds_more_than_it_may_is_refused() -> None:
    with pytest.raises(ValueError, match="more than it may"):
        decompressed(compressed(DATA), len(DATA) - 1)


@pytest.mark.parametrize("damaged", [b"", b"no frame at all", compressed(DATA)[:-1], compressed(DATA)[:9]])
def test_what_is_not_a_whole_frame_is_refused(damaged: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        decompressed(damaged)


def test_a_frame_written_by_the_library_of_earlier_releases_is_read() -> None:
    frame = "28b52ffd2060f500006868656c6c6f200a200a200a200a0700600a100e4c060401f380c0321738"  # of zstandard 0.25
    assert decompressed(bytes.fromhex(frame)) == b"hello hello hello hello\n" * 4
