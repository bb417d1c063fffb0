"""Logs and counters: what a broker says about itself. Low cardinality, no secrets.

Events have stable names and fields (`log.info("flush_failed", extra=fields(...))` is spelt
`event(log, "flush_failed", ...)`), so that they can be searched for and documented.
"""

import json
import logging
from bisect import bisect_left
from collections.abc import Callable, Iterator
from itertools import accumulate
from typing import Any, Final

from prometheus_client import CollectorRegistry, Counter, Gauge
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""The bounds of the buckets in which times are counted."""


class Count(Collector):
    """A counter that only the loop touches: a plain number, without the lock of the library's.

    The lock costs half a microsecond, several times a request.
    """

    def __init__(self, name: str, documentation: str) -> None:
        self.value = 0
        self._name = name
        self._documentation = documentation

    def inc(self, amount: int = 1) -> None:
        """Count on."""
        self.value += amount

    def collect(self) -> Iterator[Metric]:
        """What a scrape sees."""
        yield CounterMetricFamily(self._name, self._documentation, self.value)


class RequestTimes(Collector):
    """How many requests of each API were answered, and how long that took."""

    def __init__(self) -> None:
        self._buckets: dict[str, list[int]] = {}
        self._seconds: dict[str, float] = {}

    def observe(self, api: str, seconds: float, requests: int = 1) -> None:
        """Requests of this API were answered, each after so many seconds."""
        buckets = self._buckets.get(api)
        if buckets is None:
            buckets = self._buckets[api] = [0] * (len(SECONDS) + 1)
            self._seconds[api] = 0.0
        buckets[bisect_left(SECONDS, seconds)] += requests
        self._seconds[api] += seconds * requests

    def count(self, api: str) -> int:
        """How many requests of this API were answered."""
        return sum(self._buckets.get(api, ()))

    def collect(self) -> Iterator[Metric]:
        """What a scrape sees."""
        documentation = "From a request's last byte to its answer"
        times = HistogramMetricFamily("lakelog_request_seconds", documentation, labels=["api"])
        counts = CounterMetricFamily("lakelog_requests", "Requests answered", labels=["api"])
        bounds = [*map(str, SECONDS), "+Inf"]
        for api, buckets in sorted(self._buckets.items()):
            totals = list(accumulate(buckets))
            rows = list(zip(bounds, totals, strict=True))
            times.add_metric([api], rows, self._seconds[api])
            counts.add_metric([api], totals[-1])
        yield counts
        yield times


class Levels(Collector):
    """How many things there are of each kind; only the loop touches it."""

    def __init__(self, name: str, documentation: str, labels: tuple[str, ...]) -> None:
        self.values: dict[tuple[str, ...], int] = {}
        self.refresh: Callable[[], None] = lambda: None
        """Called before each look: what is costly to know is found out then."""
        self._name = name
        self._documentation = documentation
        self._labels = labels

    def add(self, kind: tuple[str, ...], amount: int) -> None:
        """There are so many more of this kind."""
        self.values[kind] = self.values.get(kind, 0) + amount

    def collect(self) -> Iterator[Metric]:
        """What a scrape sees."""
        self.refresh()
        family = GaugeMetricFamily(self._name, self._documentation, labels=self._labels)
        for kind, value in sorted(self.values.items()):
            family.add_metric(kind, value)
        yield family


class MetricsRegistry:
    """The small public set of counters of one broker, on a registry of its own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.request_times = RequestTimes()
        self.registry.register(self.request_times)
        self.produced_bytes = self._count("lakelog_produced_bytes", "Record bytes accepted")
        self.fetched_bytes = self._count("lakelog_fetched_bytes", "Record bytes served")
        self.objects_put = self._count("lakelog_objects_put", "WAL objects written")
        self.objects_got = self._count("lakelog_objects_got", "Reads from the object store")
        self.appends = self._count("lakelog_appends", "Commits that were applied")
        self.index_refusals = self._count(
            "lakelog_index_refusals", "Writes refused because the offset index is full"
        )
        self.rebalances = self._count("lakelog_group_rebalances", "Generations and targets made")
        self.expired_members = self._count("lakelog_group_members_expired", "Members gone silent")
        self.offset_commits = self._count("lakelog_offset_commits", "Offsets committed")
        self.groups = Levels("lakelog_groups", "Groups by state", ("protocol", "state"))
        self.registry.register(self.groups)
        self.group_limits = Levels(
            "lakelog_group_limits", "What groups hold and may hold", ("what", "kind")
        )
        self.registry.register(self.group_limits)
        self.group_refusals = self._count(
            "lakelog_group_refusals", "Requests refused because groups hold too much"
        )
        made: dict[str, Any] = {"registry": self.registry}
        self.connections = Gauge("lakelog_connections", "Open client connections", **made)
        self.position = Gauge("lakelog_domain_position", "Applied position", ["domain"], **made)
        self.producers = Gauge(
            "lakelog_producers", "Partitions that idempotent producers wrote to", ["domain"], **made
        )
        self.producer_bytes = Gauge(
            "lakelog_producer_bytes", "What is remembered of producers", ["domain"], **made
        )
        self.producer_bytes_max = Gauge(
            "lakelog_producer_bytes_max", "The most that may be remembered", ["domain"], **made
        )
        self.clock_skew = Gauge(
            "lakelog_clock_skew_seconds", "How far the clock is behind the object store's", **made
        )
        self.index_bytes = Gauge("lakelog_index_bytes", "Memory of the offset index", **made)
        self.index_bytes_max = Gauge("lakelog_index_bytes_max", "The most it may take", **made)
        self.unavailable = Counter(
            "lakelog_unavailable", "Failures of a store, by store", ["store"], **made
        )

    def _count(self, name: str, documentation: str) -> Count:
        made = Count(name, documentation)
        self.registry.register(made)
        return made


def event(log: logging.Logger, name: str, /, level: int = logging.INFO, **fields: object) -> None:
    """Log one fact under a stable name."""
    if log.isEnabledFor(level):
        log.log(level, name, extra={"fields": fields})


class JsonLines(logging.Formatter):
    """One JSON object a line: for files and collectors."""

    def format(self, record: logging.LogRecord) -> str:
        """Render the event with its fields."""
        line: dict[str, object] = {
            "ts": int(record.created * 1000),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage(),
        }
        line.update(getattr(record, "fields", {}))
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


class PlainFormatter(logging.Formatter):
    """A line for humans at a terminal."""

    def format(self, record: logging.LogRecord) -> str:
        """Render the event with its fields."""
        fields = getattr(record, "fields", {})
        said = " ".join(f"{name}={value}" for name, value in fields.items())
        when = self.formatTime(record, "%H:%M:%S")
        line = f"{when} {record.levelname.lower():7} {record.getMessage()} {said}".rstrip()
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return line
