"""franz-go as a client: built once from `bench/go` with the Go toolchain, kept outside the tree.

Where Go is missing, or its modules cannot be fetched, `GoAbsentError` says so and the caller goes
on without it.
"""

import hashlib
import shutil
import subprocess
from pathlib import Path

from bench.peer import cache_directory

SOURCES = Path(__file__).parent / "go"
BUILD_TIMEOUT_S = 600.0


class GoAbsentError(RuntimeError):
    """franz-go cannot be had on this machine; the message says why."""


def franz_go_program() -> Path:
    """Return the program that speaks `bench.jobs`, built now if its sources are new."""
    sources = sorted(path for path in SOURCES.iterdir() if path.is_file())
    digest = hashlib.sha256(b"\0".join(path.read_bytes() for path in sources)).hexdigest()
    program = cache_directory() / "franz-go" / f"produce-{digest[:16]}"
    if not program.exists():
        build(program)
    return program


def build(program: Path) -> None:
    """Build the program; the modules and their sums are those that the sources name."""
    go = shutil.which("go")
    if go is None:
        raise GoAbsentError("no go on the path")
    program.parent.mkdir(parents=True, exist_ok=True)
    try:
        done = subprocess.run(
            [go, "build", "-o", str(program), "."],
            cwd=SOURCES,
            capture_output=True,
            text=True,
            timeout=BUILD_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise GoAbsentError(f"go build took longer than {BUILD_TIMEOUT_S:.0f} s") from error
    if done.returncode:
        raise GoAbsentError(f"go build failed: {done.stderr.strip()[-300:]}")
