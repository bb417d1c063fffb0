"""What may be loaded without PyIceberg."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    "module",
    [
        *("port", "pointers", "definition", "guard", "live_files", "threads"),
        *("tables", "history"),
    ],
)
def test_what_the_broker_may_load_brings_no_heavy_library(module: str) -> None:
    code = (
        f"import sys, lakelog.catalog.{module}\n"
        "heavy = {'pyiceberg', 'pyarrow', 'pydantic'} & set(sys.modules)\n"
        "sys.exit(', '.join(sorted(heavy)) or 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
