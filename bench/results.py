"""What a benchmark found: one JSON line per run, and the table at the end.

Rules: the ratio ours/peer comes first, then the absolute medians with minimum and maximum. A metric
knows whether more or less is better; the table says which. Nothing is averaged over cells.
"""

import json
import os
import platform
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path

import psutil

OURS = "ours"
KAFKA = "kafka"


@dataclass(frozen=True, slots=True)
class Metric:
    """A figure's name, unit and direction."""

    name: str
    unit: str
    more_is_better: bool = True


@dataclass(frozen=True, slots=True)
class Sample:
    """One run of one cell against one broker."""

    benchmark: str
    cell: str
    arm: str
    round: int
    values: Mapping[str, float]
    notes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Summary:
    """Median, minimum and maximum of one metric of one cell."""

    median: float
    low: float
    high: float


def summarise(values: Sequence[float]) -> Summary:
    """Return median, minimum and maximum."""
    return Summary(statistics.median(values), min(values), max(values))


def percentiles_ms(seconds: Sequence[float]) -> tuple[float, float, float]:
    """Return p50, p99 and p99.9 in milliseconds; zeros where there is nothing."""
    if not seconds:
        return (0.0, 0.0, 0.0)
    ordered = sorted(seconds)
    p50, p99, p999 = (
        ordered[min(int(len(ordered) * share), len(ordered) - 1)] * 1e3
        for share in (0.5, 0.99, 0.999)
    )
    return (p50, p99, p999)


class Recorder:
    """Collects samples, writes each as a JSON line as it comes, and prints progress."""

    def __init__(self, out: Path | None, environment: Mapping[str, str]) -> None:
        self._out = out
        self._environment = dict(environment)
        self.samples: list[Sample] = []

    def add(self, sample: Sample) -> None:
        """Keep one sample and write it down at once: a crash later loses nothing."""
        self.samples.append(sample)
        shown = "  ".join(f"{name}={value:,.4g}" for name, value in sample.values.items())
        where = f"{sample.benchmark} {sample.cell} #{sample.round}"
        print(f"  {where:<58} {sample.arm:<6} {shown}", flush=True)
        if self._out is not None:
            around = {"load": os.getloadavg()[0], "free_mb": free_mb()}
            line = asdict(sample) | {"environment": self._environment} | around
            with self._out.open("a") as file:
                file.write(json.dumps(line) + "\n")


def free_mb() -> float:
    """Return the memory that is free or can be had back at once, in MB.

    A run that takes ever more of it measures how the machine hands memory out.
    """
    return float(psutil.virtual_memory().available) / 1e6


def versions(peer_version: str | None) -> dict[str, str]:
    """Return what was measured with what."""
    return {
        "python": platform.python_version(),
        "machine": f"{platform.machine()} x{os.cpu_count()}",
        "kernel": platform.release(),
        "confluent-kafka": version("confluent-kafka"),
        "lakelog": version("lakelog"),
        "kafka": peer_version or "absent",
    }


def table(samples: Iterable[Sample], metrics: Sequence[Metric]) -> str:
    """Return the readable table of one benchmark: ratio first, then the absolute figures."""
    grouped: dict[tuple[str, str], dict[str, list[float]]] = {}
    for sample in samples:
        for metric in metrics:
            if metric.name in sample.values:
                arms = grouped.setdefault((sample.cell, metric.name), {})
                arms.setdefault(sample.arm, []).append(sample.values[metric.name])
    by_name = {metric.name: metric for metric in metrics}
    head = ("cell", "figure", "ours/kafka", "ours [min..max]", "kafka [min..max]")
    rows = [head]
    for (cell, name), arms in grouped.items():
        metric = by_name[name]
        sign = "+" if metric.more_is_better else "-"
        ours, kafka = (arms.get(OURS), arms.get(KAFKA))
        figure = f"{sign}{name} {metric.unit}"
        rows.append((cell, figure, ratio(ours, kafka), show(ours), show(kafka)))
    widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        for row in rows
    ]
    lines.insert(1, "-" * len(lines[0]))
    return "\n".join(line.rstrip() for line in lines)


def ratio(ours: Sequence[float] | None, kafka: Sequence[float] | None) -> str:
    """Return ours over the peer's, of medians; a dash where one of them is missing."""
    if not ours or not kafka or statistics.median(kafka) == 0:
        return "-"
    return f"{statistics.median(ours) / statistics.median(kafka):.2f}x"


def show(values: Sequence[float] | None) -> str:
    """Return median [min..max], or `absent`."""
    if not values:
        return "absent"
    summary = summarise(values)
    if summary.low == summary.high:
        return f"{summary.median:,.4g}"
    return f"{summary.median:,.4g} [{summary.low:,.4g}..{summary.high:,.4g}]"
