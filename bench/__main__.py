"""`python -m bench`: benchmarks of our broker with Apache Kafka beside it in the same run."""

import argparse
import importlib.util
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from bench import arena
from bench.broker import CAN_PIN, CLIENT_CORE, StartError
from bench.clients import ClientError
from bench.peer import Peer, PeerAbsentError, find_peer
from bench.raw import KafkaError
from bench.results import Metric, Recorder, free_mb, table, versions

DRIVERS = {
    "b1": "bench.b1_produce",
    "b3": "bench.b3_fetch",
    "b4": "bench.b4_catch_up",
    "b5": "bench.b5_arrow",
    "b6": "bench.b6_compaction",
    "b7": "bench.b7_freshness",
    "b8": "bench.b8_commit",
    "b9": "bench.b9_partitions",
    "b10": "bench.b10_connections",
    "b12": "bench.b12_footprint",
    "b13": "bench.group_restart",
    "b14": "bench.group_many",
    "b15": "bench.group_commit",
    "b16": "bench.group_heartbeat",
    "b17": "bench.group_rebalance",
    "b18": "bench.b18_spark",
    "b19": "bench.b19_discovery",
    "latency": "bench.latency",
}
FAMILIES = {"groups": ("b13", "b14", "b15", "b16", "b17")}
QUIET_LOAD = 0.3


class Driver(Protocol):
    """What a benchmark module offers."""

    NAME: str
    METRICS: Sequence[Metric]

    def run(self, arena: arena.Arena) -> None:
        """Measure and record."""


def load(name: str) -> Driver | None:
    """Import a driver; None where its module is not part of this build."""
    if importlib.util.find_spec(DRIVERS[name]) is None:
        return None
    driver: Driver = importlib.import_module(DRIVERS[name])
    return driver


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one short round of the main cells")
    parser.add_argument("--only", default=",".join(DRIVERS), help="a list such as b1,b3, or groups")
    parser.add_argument("--out", type=Path, help="append one JSON line per run to this file")
    parser.add_argument("--no-peer", action="store_true", help="absolute figures of ours alone")
    parser.add_argument("--peer-only", action="store_true", help="the peer alone, to prove drivers")
    parser.add_argument("--rounds", type=int, help="rounds per cell")
    parser.add_argument("--seconds", type=float, help="seconds per run")
    parser.add_argument("--warm-up", type=float, help="seconds of load before the first round")
    parser.add_argument("--cells", default="", help="only cells whose name contains this")
    parser.add_argument("--disk", type=Path, help="a directory on a real disk")
    parser.add_argument("--on-disk", action="store_true", help="put all data on the disk")
    parsed = parser.parse_args(arguments)
    parsed.only = expand(parsed.only)
    unknown = sorted(set(parsed.only) - set(DRIVERS))
    if unknown:
        known = ", ".join((*DRIVERS, *FAMILIES))
        parser.error(f"no benchmark called {', '.join(unknown)}; there are {known}")
    return parsed


def expand(names: str) -> list[str]:
    """Return the benchmarks that a list names, with families in full."""
    return [each for name in names.split(",") for each in FAMILIES.get(name, (name,))]


def choose_arms(options: argparse.Namespace) -> tuple[list[arena.Arm], Peer | None]:
    """Return who takes part; says so where the peer cannot."""
    peer = None
    if not options.no_peer:
        try:
            peer = find_peer()
        except PeerAbsentError as absent:
            print(f"peer absent: {absent}")
    arms = [] if options.peer_only else [arena.our_arm()]
    if peer is not None:
        arms.append(arena.peer_arm(peer))
    return arms, peer


def choose_scale(options: argparse.Namespace) -> arena.Scale:
    """Return the scale that the command line asks for."""
    scale = arena.QUICK if options.quick else arena.FULL
    return replace(
        scale,
        rounds=options.rounds or scale.rounds,
        seconds=options.seconds or scale.seconds,
        warm_up_seconds=options.warm_up or scale.warm_up_seconds,
    )


def main(arguments: Sequence[str]) -> int:
    """Run the chosen benchmarks and print a table for each."""
    options = parse(arguments)
    arms, peer = choose_arms(options)
    if not arms:
        return 1
    load_before = os.getloadavg()[0]
    if load_before > QUIET_LOAD:
        print(f"the machine is not quiet (load {load_before:.2f}): take ratios, not figures")
    if options.quick and peer is not None:
        print("quick: the peer's compiler has barely warmed up, so ratios flatter ours")
    if CAN_PIN:
        os.sched_setaffinity(0, {CLIENT_CORE})
    else:
        print("broker and clients share their cores here: nothing is pinned")
    disk = options.disk or Path(tempfile.gettempdir())
    memory = arena.MEMORY_DIRECTORY if arena.MEMORY_DIRECTORY.is_dir() else disk
    recorder = Recorder(options.out, versions(peer.version if peer else None))
    storage = disk if options.on_disk else memory
    place = arena.Arena(arms, choose_scale(options), recorder, storage, disk, options.cells)
    failed = [name for name in options.only if not run_one(name, place)]
    if failed:
        print(f"failed: {', '.join(failed)}")
    return 1 if failed else 0


def run_one(name: str, place: arena.Arena) -> bool:
    """Run one benchmark and print its table; False if a broker or a client broke it off."""
    driver = load(name)
    if driver is None:
        print(f"{name}: not part of this build")
        return True
    print(f"\n{name}: {(driver.__doc__ or '').splitlines()[0]}", flush=True)
    started, free_before = time.monotonic(), free_mb()
    is_whole = True
    try:
        driver.run(place)
    except (StartError, ClientError, KafkaError, OSError, ExceptionGroup) as broken:
        # An ExceptionGroup comes from connections on one loop, where the first failure ends all.
        print(f"{name} broke off: {broken!r}")
        is_whole = False
    # What was measured before a failure is worth reading too.
    mine = [sample for sample in place.recorder.samples if sample.benchmark == driver.NAME]
    print(f"\n{table(mine, driver.METRICS)}", flush=True)
    memory = f"free memory {free_before:,.0f} MB before, {free_mb():,.0f} MB after"
    print(f"({time.monotonic() - started:.0f} s; {memory})", flush=True)
    return is_whole


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
