"""B16: what a heartbeat costs with ten thousand members, in groups of a thousand.

*Paced*: every member every three seconds, spread evenly; the broker's own idle work is in it.
*Full*: every connection sends the next heartbeat as soon as the last is answered.
"""

from bench.arena import Arena, Contestant
from bench.group_lane import open_lanes
from bench.groups import (
    HEARTBEAT_S,
    KINDS,
    Pulse,
    Shape,
    assemble,
    equal_settings,
    make_topic,
    warm_up,
)
from bench.pipeline import run_loop
from bench.results import Metric, Sample

NAME = "b16"
GROUPS, SIZE = 10, 1_000
JOIN_INTERVAL_S = 0.5
SECONDS_MIN = 3.0
METRICS = (
    Metric("cpu_us", "broker-cpu-us/heartbeat", more_is_better=False),
    Metric("beats_s", "1/s"),
    Metric("beat_p99_ms", "ms", more_is_better=False),
    Metric("later_s", "1/s", more_is_better=False),
    Metric("others_cores", "cores", more_is_better=False),
)


def run(arena: Arena) -> None:
    """Measure both protocols in turns."""
    with equal_settings(), arena.contest(warm_up) as contestants:
        for number in range(arena.scale.rounds):
            for kind in KINDS:
                for contestant in contestants:
                    found = measure(contestant, kind, max(arena.scale.seconds, SECONDS_MIN))
                    for pace, values in found.items():
                        cell = f"{GROUPS * SIZE:,} members, {kind}, {pace}"
                        arena.recorder.add(Sample(NAME, cell, contestant.name, number, values))


def measure(contestant: Contestant, kind: str, seconds: float) -> dict[str, dict[str, float]]:
    """Form the groups one after the other, then heartbeat at both paces."""
    broker = contestant.broker
    topic = make_topic(broker.port, SIZE)
    shape = Shape(kind, GROUPS, SIZE, 1, JOIN_INTERVAL_S)

    async def work() -> dict[str, dict[str, float]]:
        lanes = await open_lanes(broker.port, shape.lanes())
        crowd = await assemble(shape, topic, SIZE, lanes)
        found = {
            "paced": await Pulse(crowd, interval_s=HEARTBEAT_S).run(broker, seconds),
            "full": await Pulse(crowd, interval_s=0.0).run(broker, seconds),
        }
        await crowd.disband()
        return found

    return run_loop(work())
