"""The metrics of the hot path read like those of prometheus_client."""

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import generate_latest

from threadcast.base.loop_metrics import LoopCounter, LoopGauge, LoopHistogram

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


@given(st.lists(st.sampled_from([("a", "200"), ("a", "404"), ('b"\n', "200")])), st.lists(st.booleans()))
def test_labels_and_gauges_read_like_those_of_prometheus(values: list[tuple[str, str]], changes: list[bool]) -> None:
    ours, theirs = CollectorRegistry(), CollectorRegistry()
    count, gauge = LoopCounter("a", "Counts", ours, ("route", "status")), LoopGauge("b", "Open", ours)
    their_count = Counter("a", "Counts", ("route", "status"), registry=theirs)
    their_gauge = Gauge("b", "Open", registry=theirs)
    for pair in values:
        count.inc(*pair)
        their_count.labels(*pair).inc()
    for is_opened in changes:
        for each in (gauge, their_gauge):
            each.inc() if is_opened else each.dec()
    assert lines(ours) == lines(theirs)
