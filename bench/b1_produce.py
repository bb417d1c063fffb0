"""B1: what a produced megabyte costs the broker, and how fast the clock saw it.

`librdkafka`: two producers in processes of their own. `socket`: two connections with prepared
requests, of which 8, 256 or 2,048 are under way, so that the broker is never short of work.
`many`: clients whose requests are for many partitions. MB are values; every cell has its own
brokers, warmed by its own load. What a client says of its batches is kept, so that a cell's name
can be checked.
"""

from bench.arena import Arena, Contestant
from bench.clients import ClientError
from bench.produce_cells import ProduceCell, foreign_cells, produce_cells
from bench.results import Metric, Sample

NAME = "b1"
METRICS = (
    Metric("mb_per_cpu_s", "MB/broker-cpu-s"),
    Metric("wall_mb_s", "MB/s"),
    Metric("us_per_request", "us of broker CPU", more_is_better=False),
    Metric("rss_mb", "MB", more_is_better=False),
)


def run(arena: Arena) -> None:
    """Measure cell by cell, the arms in turns."""
    cells = produce_cells(arena.scale)
    # The clients of other languages start slowly: a quick run has them when it is asked for cells.
    if arena.cells or not arena.scale.quick:
        cells += foreign_cells(arena.scale)
    for cell in cells:
        if not arena.wants(cell.name):
            continue
        with arena.contest(cell.warm_up) as contestants:
            for number in range(arena.scale.rounds):
                for contestant in contestants:
                    arena.recorder.add(measure(contestant, cell, number))


def measure(contestant: Contestant, cell: ProduceCell, number: int) -> Sample:
    """Run one cell against one broker."""
    contestant.make_room()
    effort = cell.run(contestant.broker)
    if not effort.megabytes():
        raise ClientError(f"nothing was produced in {cell.name}")
    sizes = [outcome.batch_bytes for outcome in effort.outcomes]
    values = {
        "mb_per_cpu_s": effort.megabytes_per_cpu_second(),
        "wall_mb_s": effort.megabytes_per_second(),
        "us_per_request": effort.microseconds_per_request(),
        "rss_mb": effort.rss_bytes / 1e6,
        "batch_bytes": sum(sizes) / len(sizes),
        "cpu_s": effort.cpu_seconds,
        "mb": effort.megabytes(),
        "failures": float(effort.failures()),
    }
    return Sample(NAME, cell.name, contestant.name, number, values)
