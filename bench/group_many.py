"""B14: a thousand groups of ten members: how soon all are stable, and what they cost then.

So many groups join at the same time as there are connections for; each begins when its predecessor
is stable. Then all members heartbeat every three seconds, spread evenly.
"""

import time

from bench.arena import Arena, Contestant
from bench.group_lane import open_lanes
from bench.groups import (
    HEARTBEAT_S,
    KINDS,
    Meter,
    Pulse,
    Shape,
    assemble,
    equal_settings,
    make_topic,
    warm_up,
)
from bench.pipeline import run_loop
from bench.results import Metric, Sample

NAME = "b14"
GROUPS, SIZE, AT_ONCE = 1_000, 10, 32
JOIN_INTERVAL_S = 0.1
SECONDS_MIN = 3.0
METRICS = (
    Metric("stable_s", "s", more_is_better=False),
    Metric("stable_cpu_s", "broker-cpu-s", more_is_better=False),
    Metric("cpu_us", "broker-cpu-us/heartbeat", more_is_better=False),
    Metric("beats_s", "1/s"),
    Metric("beat_p99_ms", "ms", more_is_better=False),
    Metric("later_s", "1/s", more_is_better=False),
    Metric("rss_mb", "MB", more_is_better=False),
    Metric("others_cores", "cores", more_is_better=False),
)


def run(arena: Arena) -> None:
    """Measure both protocols in turns."""
    with equal_settings(), arena.contest(warm_up) as contestants:
        for number in range(arena.scale.rounds):
            for kind in KINDS:
                for contestant in contestants:
                    values = measure(contestant, kind, max(arena.scale.seconds, SECONDS_MIN))
                    cell = f"{GROUPS:,} groups of {SIZE}, {kind}"
                    arena.recorder.add(Sample(NAME, cell, contestant.name, number, values))


def measure(contestant: Contestant, kind: str, seconds: float) -> dict[str, float]:
    """Form all groups, then heartbeat."""
    broker = contestant.broker
    topic = make_topic(broker.port, SIZE)
    shape = Shape(kind, GROUPS, SIZE, AT_ONCE, JOIN_INTERVAL_S)

    async def work() -> dict[str, float]:
        lanes = await open_lanes(broker.port, shape.lanes())
        meter, started = Meter(broker), time.perf_counter()
        crowd = await assemble(shape, topic, SIZE, lanes)
        values = {"stable_s": time.perf_counter() - started, "stable_cpu_s": meter.cpu_seconds()}
        values |= await Pulse(crowd, interval_s=HEARTBEAT_S).run(broker, seconds)
        values["rss_mb"] = broker.rss_bytes() / 1e6
        await crowd.disband()
        return values

    return run_loop(work())
