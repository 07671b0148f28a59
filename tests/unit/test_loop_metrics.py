"""The metrics of the hot path read like those of prometheus_client."""

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.exposition import generate_latest

from threadcast.base.loop_metrics import LoopCounter, LoopHistogram

BUCKETS = (0.001, 0.5, 1.0)


def lines(registry: CollectorRegistry) -> list[str]:
    """Return the samples, without the times at which the metrics were made."""
    return [line for line in generate_latest(registry).decode().splitlines() if "_created" not in line]


@given(st.lists(st.sampled_from([0.0, 0.001, 0.0011, 0.5, 0.75, 1.0, 3.0])))
def test_a_scrape_shows_what_prometheus_would_show(values: list[float]) -> None:
    ours, theirs = CollectorRegistry(), CollectorRegistry()
    count, histogram = LoopCounter("a", "Counts", ours), LoopHistogram("b", "Sizes", BUCKETS, ours)
    their_count = Counter("a", "Counts", registry=theirs)
    their_histogram = Histogram("b", "Sizes", registry=theirs, buckets=BUCKETS)
    for value in values:
        count.inc()
        their_count.inc()
        histogram.observe(value)
        their_histogram.observe(value)
    assert lines(ours) == lines(theirs)
