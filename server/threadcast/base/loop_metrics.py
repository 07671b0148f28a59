"""Metrics for the hot path. They cost a tenth of the metrics of prometheus_client, which take a lock for each number.

Only the event loop's thread may change them; a scrape from any thread reads a value that is at most one change old.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence

from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

__all__ = ["LoopCounter", "LoopGauge", "LoopHistogram"]


class LoopCounter(Collector):
    """Counts what has happened; `name` is the full name, without `_total`. Each combination of values of the `labels`
    is counted for itself."""

    def __init__(self, name: str, meaning: str, registry: CollectorRegistry, labels: Sequence[str] = ()) -> None:
        self._name = name
        self._meaning = meaning
        self._labels = labels
        self._counts: dict[tuple[str, ...], int] = {} if labels else {(): 0}
        registry.register(self)

    def inc(self, *values: str) -> None:
        """Add one. `values` are the values of the labels, in their order."""
        self._counts[values] = self._counts.get(values, 0) + 1

    def collect(self) -> Iterator[CounterMetricFamily]:
        family = CounterMetricFamily(self._name, self._meaning, labels=self._labels)
        for values, count in self._counts.copy().items():
            family.add_metric(values, count)
        yield family


class LoopGauge(Collector):
    """Counts what exists at present; `name` is the full name."""

    def __init__(self, name: str, meaning: str, registry: CollectorRegistry) -> None:
        self._name = name
        self._meaning = meaning
        self._count = 0
        registry.register(self)

    def inc(self) -> None:
        self._count += 1

    def dec(self) -> None:
        self._count -= 1

    def collect(self) -> Iterator[GaugeMetricFamily]:
        yield GaugeMetricFamily(self._name, self._meaning, value=self._count)


class LoopHistogram(Collector):
    """Counts values by size. `buckets` are upper bounds in rising order, without infinity."""

    def __init__(self, name: str, meaning: str, buckets: Sequence[float], registry: CollectorRegistry) -> None:
        self._name = name
        self._meaning = meaning
        self._bounds = tuple(buckets)
        self._counts = [0] * (len(self._bounds) + 1)
        self._sum = 0.0
        registry.register(self)

    def observe(self, value: float) -> None:
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def collect(self) -> Iterator[HistogramMetricFamily]:
        below, cumulated = 0, []
        for bound, count in zip((*self._bounds, float("inf")), list(self._counts), strict=True):
            below += count
            cumulated.append(("+Inf" if bound == float("inf") else str(bound), float(below)))
        yield HistogramMetricFamily(self._name, self._meaning, buckets=cumulated, sum_value=self._sum)
