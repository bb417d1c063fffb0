"""Logs and counters: what a broker says about itself. Low cardinality, no secrets.

Events have stable names and fields (`log.info("flush_failed", extra=fields(...))` is spelt
`event(log, "flush_failed", ...)`), so that they can be searched for and documented.
"""

import json
import logging
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram


class Metrics:
    """The small public set of counters of one broker, on a registry of its own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        made: dict[str, Any] = {"registry": self.registry}
        self.requests = Counter("lakelog_requests", "Requests answered", ["api"], **made)
        self.request_seconds = Histogram(
            "lakelog_request_seconds", "From a request's last byte to its answer", ["api"], **made
        )
        self.produced_bytes = Counter("lakelog_produced_bytes", "Record bytes accepted", **made)
        self.fetched_bytes = Counter("lakelog_fetched_bytes", "Record bytes served", **made)
        self.connections = Gauge("lakelog_connections", "Open client connections", **made)
        self.objects_put = Counter("lakelog_objects_put", "WAL objects written", **made)
        self.objects_got = Counter("lakelog_objects_got", "Reads from the object store", **made)
        self.appends = Counter("lakelog_appends", "Records appended to domain logs", **made)
        self.position = Gauge("lakelog_domain_position", "Applied position", ["domain"], **made)
        self.unavailable = Counter(
            "lakelog_unavailable", "Failures of a store, by store", ["store"], **made
        )


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


class Plain(logging.Formatter):
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
