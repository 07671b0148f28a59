"""The model of `bench.capacity`: its page is current, and its plans are the smallest that carry a load."""

from dataclasses import replace

import pytest
from bench.capacity import (
    BUSY_SHARE,
    COEFFICIENTS,
    LOADS,
    PAGE,
    SHARD_MAX_BYTES,
    STREAMS_MAX,
    STREAMS_OF_A_BROWSER,
    Load,
    full_at,
    plan,
    written,
)
from hypothesis import given
from hypothesis import strategies as st

loads = st.builds(
    Load,
    readers=st.floats(1, 3e6),
    readers_of_each_chat=st.floats(1, 5_000),
    turn_every_seconds=st.floats(5, 3_600),
    answer_tokens=st.floats(1, 5_000),
    tokens_per_second=st.floats(1, 200),
    chats_kept=st.floats(0, 1_000),
    buckets=st.sampled_from([16, 64, 1_024]),
    is_routed=st.booleans(),
)


def test_the_tables_of_the_page_are_what_the_program_computes() -> None:
    page = PAGE.read_text()
    assert written(page) == page, "run python -m bench.capacity --write"


@given(loads, st.floats(1, 100))
def test_more_readers_never_need_fewer_processes_or_shards(load: Load, times: float) -> None:
    fewer, more = plan(load), plan(replace(load, readers=load.readers * times))
    assert more.web >= fewer.web and more.workers >= fewer.workers
    if more.shards:
        assert 0 < fewer.shards <= more.shards


@given(loads)
def test_no_process_of_a_plan_is_too_busy_or_has_too_many_streams(load: Load) -> None:
    found = plan(load)
    assert max(found.web_share, found.worker_share) <= BUSY_SHARE * 1.000001
    assert load.readers * STREAMS_OF_A_BROWSER <= STREAMS_MAX * found.web
    if found.shards:
        assert found.store_share <= BUSY_SHARE
        assert load.buckets > 16 or found.shards in (1, 2, 3, 4, 6, 8, 16), "a further shard relieves the fullest"
        assert found.store_gb * 1e9 / found.shards <= SHARD_MAX_BYTES
    else:
        least = max(found.store_seconds / BUSY_SHARE, found.store_gb * 1e9 / SHARD_MAX_BYTES)
        assert least > load.buckets, "as many shards as buckets suffice"


@given(loads)
def test_routing_and_more_buckets_never_need_more(load: Load) -> None:
    found = plan(replace(load, is_routed=False))
    routed, wider = plan(replace(load, is_routed=True)), plan(replace(load, is_routed=False, buckets=4 * load.buckets))
    assert routed.web <= found.web and routed.store_seconds <= found.store_seconds * 1.000001
    assert wider.shards > 0 or not found.shards
    assert (wider.web, wider.workers) == (found.web, found.workers)


def test_a_plan_by_hand() -> None:
    """8,000 chats, 800 of which stream, with an event every 150 ms; one chat in 60 begins a turn each second, and one
    turn in three is followed by a rest."""
    load = replace(LOADS["own chats"], readers=10_000.0)
    found = plan(load)
    assert load.chats == pytest.approx(8_000) and load.streaming == pytest.approx(800)
    assert load.events == pytest.approx(800 / 0.15)
    event, turn = COEFFICIENTS["worker_event"].value, COEFFICIENTS["worker_turn"].value
    idle, rest = COEFFICIENTS["worker_idle"].value, COEFFICIENTS["worker_rest"].value
    work = (800 / 0.15 * event + 8_000 / 60 * (turn + 0.33 * rest)) / 1e6
    assert found.worker_share == pytest.approx(work / found.workers + idle / 1e6)
    assert load.copies(1) == pytest.approx(1)
    assert load.copies(2) == pytest.approx(2 * (1 - 0.5**1.25))


def test_full_at_finds_the_last_number_that_fits() -> None:
    load = LOADS["own chats"]
    readers = full_at(lambda found: found.workers == 1, load)
    assert plan(replace(load, readers=readers)).workers == 1
    assert plan(replace(load, readers=readers * 1.02)).workers == 2


def test_data_for_nine_even_shards_needs_as_many_as_buckets() -> None:
    """If 16 buckets are spread over 9 to 15 shards, some shard has two buckets."""
    load = replace(LOADS["own chats"], readers=1e6, readers_of_each_chat=5_000.0, chats_kept=19.8)
    found = plan(load)
    assert 8 * SHARD_MAX_BYTES < found.store_gb * 1e9 < 9 * SHARD_MAX_BYTES
    assert found.shards == 16
