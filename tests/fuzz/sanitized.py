"""The kernels under sanitizers: `python -m tests.fuzz.sanitized --inputs N [--rounds R]`.

The extension is built once more, with every access to memory and all undefined behaviour checked,
and the fuzzers of records, Fetch answers and arguments run on it, with the twins as oracle.
Python's own allocator is switched off, so that every buffer has a border that must not be touched.
Each round has the next seed and a process of its own, so a long run may be stopped at any time.
Where there is no compiler or no sanitizer, that is said, and nothing is run.
"""

import argparse
import importlib.util
import os
import subprocess
import sys
import sysconfig
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, cast

from tests import sides
from tests.sides import compiler

from lakelog.records import kernels

if TYPE_CHECKING:
    from lakelog._native import Native

ROOT = Path(__file__).resolve().parents[2]
TARGETS = (
    *("records.scan", "records.columns", "records.batch", "records.fetched"),
    *("kernels.places", "kernels.write", "kernels.headers", "kernels.rows", "kernels.run"),
    "kernels.ordering",
    *("produce.requests", "produce.spans", "produce.answers", "produce.layout"),
)
FLAGS = (
    *("-std=c11", "-O1", "-g", "-fPIC", "-shared", "-DPy_LIMITED_API=0x030B0000"),
    *("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer"),
)
ADDRESS_OPTIONS = (
    # Leaks are Python's own at its exit, and would hide everything else.
    *("detect_leaks=0", "halt_on_error=1", "allocator_may_return_null=1"),
    # Every object of Python is allocated here. With whole call stacks, and 256 MB of freed memory
    # that goes through the caches before it is used again, the fuzzers take up to three times as
    # long. A kernel frees nothing of its caller's, and a finding is replayed by its number.
    *("malloc_context_size=1", "quarantine_size_mb=16", "thread_local_quarantine_size_kb=64"),
)


def runtime(cc: str) -> Path | None:
    """The sanitizer's library, which has to be loaded before everything else."""
    said = subprocess.run(
        [cc, "-print-file-name=libasan.so"], capture_output=True, text=True, check=False
    )
    path = Path(said.stdout.strip())
    return path.resolve() if path.is_absolute() and path.exists() else None


def build(cc: str, place: Path) -> None:
    """Compile all of `native/` into one checked module."""
    sources = sorted(str(path) for path in (ROOT / "native").glob("*.c"))
    include = sysconfig.get_path("include")
    subprocess.run([cc, *FLAGS, f"-I{include}", *sources, "-o", str(place)], check=True)


def use(place: Path) -> None:
    """Make the functions of this module the kernels of this process."""
    spec = importlib.util.spec_from_file_location("lakelog._native", place)
    assert spec is not None, place
    assert spec.loader is not None, place
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    kernels.native = sides.built = cast("Native", module)


def environment(library: Path) -> dict[str, str]:
    """What the process of the fuzzers is started with."""
    return {
        **os.environ,
        "LD_PRELOAD": str(library),
        "ASAN_OPTIONS": ":".join(ADDRESS_OPTIONS),
        "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1",
        "PYTHONMALLOC": "malloc",
    }


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.sanitized", description=__doc__)
    parser.add_argument("--inputs", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=1, help="so often, with the next seed each")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    cc = compiler()
    library = None if cc is None else runtime(cc)
    if cc is None or library is None:
        print("skipped: no C compiler with an address sanitizer")
        return 0
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "_native.abi3.so"
        build(cc, place)
        failed = []
        for seed in range(options.seed, options.seed + options.rounds):
            done = (seed - options.seed) * options.inputs
            print(f"{datetime.now(UTC):%F %T} seed {seed}, {done:,} inputs done", flush=True)
            if fuzz(place, environment(library), inputs=options.inputs, seed=seed) != 0:
                failed.append(seed)
    print(f"{options.rounds - len(failed)} rounds without a failure; seeds that failed: {failed}")
    return 1 if failed else 0


def fuzz(place: Path, variables: dict[str, str], *, inputs: int, seed: int) -> int:
    """All targets once on this module, in another process; its exit status."""
    chosen = [argument for name in TARGETS for argument in ("--target", name)]
    code = (
        "import sys; from tests.fuzz import sanitized; from pathlib import Path;"
        f"sanitized.use(Path({str(place)!r}));"
        "from tests.fuzz import __main__; sys.exit(__main__.main())"
    )
    numbers = ["--inputs", str(inputs), "--seed", str(seed)]
    command = [sys.executable, "-c", code, *numbers, *chosen]
    return subprocess.run(command, cwd=ROOT, env=variables, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
