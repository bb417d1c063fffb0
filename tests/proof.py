"""Everything that is proved about Lakelog, step by step: `make proof`, `python -m tests.proof`.

`make test` is the quick part. Here every test runs with all its examples and seeds, then the
simulation, the crash matrix, the planted bugs, the fuzzers, real clients and processes that are
killed. A step that passed is not run again for the same sources, so a run that was interrupted goes
on where it was; `--again` begins anew. Each step's output is kept in `.proof/`. At the end stands
one table, and the exit code tells whether any step failed.
"""

import argparse
import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
STATE = ROOT / ".proof"
STEP_S_MAX = 4 * 3600.0
LAST_LINES = 40
"""How far from its end a step's output is searched for its summary."""

SOURCES = ("src", "native", "setup.py", "tests", "bench")
"""What the steps run on."""

PYTEST = ("-m", "pytest", "-q", "-n", "3", "--dist", "loadgroup", "--no-loadscope-reorder")


@dataclass(frozen=True, slots=True)
class Step:
    """A command of this Python and what it shows."""

    name: str
    shows: str
    arguments: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Result:
    """How a step ended, for the sources with this digest."""

    name: str
    shows: str
    sources: str
    passed: bool
    seconds: int
    summary: str


AREAS = {
    "tests of the core": "domain streams groups wal wire records meta objects conformance golden",
    "tests of the broker": "broker coordinator topics log index server http config testing",
    "tests of clients": "kafka_client client discovery cli bench compat docs",
    "tests of tables": "catalog pipeline lake tables spark examples",
    "tests of the whole": "sim tidy",
}
"""Folders of `tests/` by step, so that a run that was interrupted need not begin anew."""


@dataclass(frozen=True, slots=True)
class Size:
    """How much of what could go on for ever is done."""

    seeds: int
    inputs: int
    pairs_parts: int
    """Of how many parts of all pairs of failures one is taken; 1 is all of them."""
    records: int


USUAL = Size(seeds=400, inputs=200_000, pairs_parts=8, records=1_000_000)
DEEP = Size(seeds=2000, inputs=1_000_000, pairs_parts=1, records=10_000_000)


def steps(size: Size) -> list[Step]:
    """All steps, the most likely to fail first."""
    matrix = ("tests.pipeline.saga.crash_matrix", "--pairs", "--part", f"0/{size.pairs_parts}")
    return [
        *(
            Step(name, "every test with all examples", (*PYTEST, *folders_of(area)))
            for name, area in AREAS.items()
        ),
        _module("mutants", "planted bugs are caught", "tests.mutants"),
        _module("simulation", f"{size.seeds} seeds", "tests.sim", "--seeds", f"{size.seeds}"),
        _module("fuzz", f"{size.inputs} inputs", "tests.fuzz", "--inputs", f"{size.inputs}"),
        _module(
            *("sanitizer", f"{size.inputs} inputs, every access checked", "tests.fuzz.sanitized"),
            *("--inputs", f"{size.inputs}"),
        ),
        _module(
            *("aarch64", f"{size.inputs // 4} inputs, under an emulator", "tests.aarch64"),
            *("--inputs", f"{size.inputs // 4}"),
        ),
        _module("saga model", "every interleaving", "tests.pipeline.saga.saga_model"),
        _module("crash matrix", f"pairs of failures, 1/{size.pairs_parts}", *matrix),
        _module("kill -9", "nothing acknowledged is lost", "tests.compat.crash"),
        _module("clients", "every producer, every consumer", "tests.compat"),
        _module("groups of clients", "with kills", "tests.compat.groups"),
        _module("engines", "read the same of tables", "tests.compat.tables"),
        _module("connectors", "Spark's for Kafka and ours", "tests.compat.spark_kafka"),
        _module(
            *("lake", f"{size.records} records, three kills", "tests.compat.lake"),
            *("--records", f"{size.records}", "--kills", "3"),
        ),
        _module(
            *("ordered consumer", f"{size.records} records in exact order", "tests.client.proof"),
            *("--records", f"{size.records}"),
        ),
    ]


def _module(name: str, shows: str, module: str, *arguments: str) -> Step:
    return Step(name, shows, ("-m", module, *arguments))


def folders_of(area: str) -> list[str]:
    """The folders of an area, as pytest is told them."""
    return [f"tests/{name}" for name in area.split()]


def digest_of_sources() -> str:
    """What the steps run on: a step need not be repeated for the same files."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", *SOURCES],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    digest = hashlib.sha256()
    for name in sorted(listed.stdout.split()):
        path = ROOT / name
        if path.is_file():
            digest.update(name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def run(step: Step, sources: str) -> Result:
    """Run the step; its output goes to a file beside the results."""
    log = STATE / f"{step.name.replace(' ', '-')}.log"
    environment = {**os.environ, "TEST_PROFILE": "full"}
    began = time.monotonic()
    with log.open("wb") as output:
        try:
            code = subprocess.run(
                [sys.executable, *step.arguments],
                cwd=ROOT,
                env=environment,
                stdout=output,
                stderr=subprocess.STDOUT,
                timeout=STEP_S_MAX,
                check=False,
            ).returncode
        except subprocess.TimeoutExpired:
            code = -1
    seconds = round(time.monotonic() - began)
    return Result(step.name, step.shows, sources, code == 0, seconds, summary_of(log))


def summary_of(log: Path) -> str:
    """The last line of a step's output that says something."""
    lines = [line.strip(" =") for line in log.read_text(errors="replace").splitlines()]
    said = [line for line in lines[-LAST_LINES:] if any(letter.isalnum() for letter in line)]
    return said[-1][:100] if said else "no output"


def table(results: Sequence[Result]) -> str:
    """The results as a page shows them."""
    rows = ["| step | what it shows | result | minutes | its last line |", "|---|---|---|---|---|"]
    for result in results:
        verdict = "passed" if result.passed else "FAILED"
        summary = result.summary.replace("|", "/")
        minutes = f"{result.seconds / 60:.1f}"
        rows.append(f"| {result.name} | {result.shows} | {verdict} | {minutes} | {summary} |")
    return "\n".join(rows)


def known_results() -> dict[str, Result]:
    """What earlier runs left, by the names of their steps."""
    path = STATE / "results.json"
    if not path.exists():
        return {}
    return {entry["name"]: Result(**entry) for entry in json.loads(path.read_text())}


def is_proved(step: Step, known: Result | None, sources: str) -> bool:
    """Whether the same step passed on the same sources."""
    if known is None or not known.passed:
        return False
    return (known.sources, known.shows) == (sources, step.shows)


def main() -> int:
    """Run what is not proved yet, and print the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.proof", description=__doc__)
    parser.add_argument("--deep", action="store_true", help="five times as much, in hours")
    parser.add_argument("--only", help="steps whose name holds these words")
    parser.add_argument("--again", action="store_true", help="also what has passed already")
    options = parser.parse_args()
    STATE.mkdir(exist_ok=True)
    sources = digest_of_sources()
    results = {} if options.again else known_results()
    chosen = steps(DEEP if options.deep else USUAL)
    for step in chosen:
        if options.only and options.only not in step.name:
            continue
        if is_proved(step, results.get(step.name), sources):
            continue
        print(f"{step.name}: {step.shows} ...", flush=True)
        results[step.name] = run(step, sources)
        text = json.dumps([asdict(result) for result in results.values()], indent=1)
        (STATE / "results.json").write_text(text)
    shown = [results[step.name] for step in chosen if step.name in results]
    print(table(shown))
    return 0 if all(result.passed for result in shown) else 1


if __name__ == "__main__":
    sys.exit(main())
