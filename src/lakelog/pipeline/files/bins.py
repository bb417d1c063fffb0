"""Bins: which compaction tasks one task of the engine runs, one after another. Pure.

A task of the engine costs 25 to 30 ms however little it does, so a thousand small compaction tasks
share a few: a bin holds about a target file's bytes, or a second of work, and there are at most a
few bins a slot; work that is worth it is spread over all slots. Large tasks are placed first, each
into the lightest bin, so that no slot waits long for the last one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heapify, heapreplace


@dataclass(frozen=True, slots=True)
class BinOptions:
    """What a task of the engine should hold, and what work is thought to cost."""

    bins_per_slot_max: int = 3
    work_ms_min: int = 1000
    spread_ms_min: int = 200
    """Less work than this is not worth a second task of the engine."""
    bytes_target: int = 256 << 20
    bytes_per_ms: int = 100_000
    """About what a core decodes and writes; only the proportion to `task_ms` matters."""
    task_ms: int = 8
    """What a compaction task costs however small it is: a few requests and a file."""

    def __post_init__(self) -> None:
        assert min(self.bins_per_slot_max, self.work_ms_min, self.bytes_target) > 0, self
        assert self.bytes_per_ms > 0, self
        assert self.task_ms > 0, self


def pack(
    input_bytes: Sequence[int], *, slots: int, options: BinOptions
) -> tuple[tuple[int, ...], ...]:
    """Bins of places in `input_bytes`, each in rising order; every place is in exactly one bin."""
    assert slots > 0, slots
    if not input_bytes:
        return ()
    costs_ms = [options.task_ms + size // options.bytes_per_ms for size in input_bytes]
    count = _bin_count(sum(input_bytes), sum(costs_ms), len(input_bytes), slots, options)
    bins: list[list[int]] = [[] for _ in range(count)]
    loads = [(0, number) for number in range(count)]
    heapify(loads)
    for place in sorted(range(len(costs_ms)), key=lambda place: (-costs_ms[place], place)):
        load, number = loads[0]
        bins[number].append(place)
        heapreplace(loads, (load + costs_ms[place], number))
    return tuple(tuple(sorted(one)) for one in bins)


def _bin_count(total_bytes: int, total_ms: int, tasks: int, slots: int, options: BinOptions) -> int:
    """Enough bins that each has its share of work, not more than slots can use, none empty."""
    by_work = total_ms // options.work_ms_min
    by_bytes = total_bytes // options.bytes_target
    by_slots = min(slots, total_ms // options.spread_ms_min)
    wanted = max(1, by_work, by_bytes, by_slots)
    return min(wanted, slots * options.bins_per_slot_max, tasks)
