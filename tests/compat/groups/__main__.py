"""`python -m tests.compat.groups`: real consumers in groups, against ours or Apache Kafka."""

import argparse
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bench.broker import StartError
from bench.peer import PeerAbsentError
from tests.compat.clients import MissingError
from tests.compat.groups.churn import FLAVOURS, churn
from tests.compat.groups.clusters import cluster_of
from tests.compat.groups.failover import failover, pause
from tests.compat.groups.look import Admin
from tests.compat.groups.scene import Scene
from tests.compat.groups.tools import tools


@dataclass(frozen=True, slots=True)
class Scenario:
    """One thing to prove, and how many brokers it needs."""

    name: str
    brokers: int
    run: Callable[[Scene], None]


SCENARIOS = (
    *(Scenario(f"churn-{name}", 1, partial(churn, flavour=name)) for name in FLAVOURS),
    Scenario("failover", 2, failover),
    Scenario("pause", 2, pause),
    Scenario("tools", 1, tools),
)


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.compat.groups", description=__doc__)
    names = ", ".join(scenario.name for scenario in SCENARIOS)
    parser.add_argument("--against", choices=("ours", "kafka"), default="ours")
    parser.add_argument("--only", default="", help=f"names that begin so, by commas: {names}")
    parser.add_argument("--records", type=int, default=1_000_000, help="records of each churn")
    parser.add_argument("--rate", type=float, default=8_000.0, help="records/s of each churn")
    parser.add_argument("--folder", type=Path, help="where data and notes go")
    return parser.parse_args(arguments)


def chosen(only: str) -> list[Scenario]:
    """Return the scenarios whose names begin with one of the words; all if none is given."""
    words = [word for word in only.split(",") if word]
    return [
        each for each in SCENARIOS if not words or any(each.name.startswith(word) for word in words)
    ]


def run(scenario: Scenario, options: argparse.Namespace, folder: Path) -> list[str]:
    """Run one scenario on brokers of its own and return what was found."""
    session_ms = 10_000 if scenario.brokers > 1 else 6_000
    with cluster_of(options.against, folder, scenario.brokers, session_ms) as cluster:
        scene = Scene(
            cluster=cluster,
            folder=folder,
            admin=Admin(cluster.bootstrap),
            records=options.records,
            per_second=options.rate,
            session_ms=session_ms,
            report=lambda text: print(text, flush=True),
        )
        try:
            scenario.run(scene)
        except MissingError:
            raise
        except Exception as error:  # noqa: BLE001 - one scenario that breaks must not hide the others
            traceback.print_exc()
            scene.found(f"broke off: {type(error).__name__}: {error}")
    return scene.findings


def attempt(scenario: Scenario, options: argparse.Namespace) -> str:
    """Run one scenario; its folder stays only if something was found."""
    folder = Path(tempfile.mkdtemp(prefix="lakelog-groups-", dir=options.folder))
    print(f"{scenario.name} against {options.against}", flush=True)
    started_s = time.monotonic()
    try:
        findings = run(scenario, options, folder)
    except (MissingError, PeerAbsentError) as missing:
        shutil.rmtree(folder)
        return f"skipped: {missing}"
    except StartError as error:
        findings = [str(error)]
    took = f"{time.monotonic() - started_s:.0f} s"
    if findings:
        return f"{len(findings)} FINDINGS in {took}, notes and logs in {folder}"
    shutil.rmtree(folder)
    return f"ok in {took}"


def main(arguments: Sequence[str]) -> int:
    """Run the scenarios; 1 if anything was found."""
    options = parse(arguments)
    outcomes = {scenario.name: attempt(scenario, options) for scenario in chosen(options.only)}
    print()
    for name, outcome in outcomes.items():
        print(f"{name:<20} {outcome}")
    return 1 if not outcomes or any("FINDINGS" in each for each in outcomes.values()) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
