"""Both sides of every kernel: the compiled one, and its twin in Python.

A test that compares them, or runs on both, must not pass because the compiled side was not there.
So it fails where the extension is missing, and is skipped, by name, only where it could not be
built: on a machine without a C compiler.
"""

import shutil
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from lakelog.records import kernels

if TYPE_CHECKING:
    from lakelog._native import Native

built: "Native | None" = kernels.native
"""The compiled kernels, also while a test runs the twins."""

both = pytest.mark.parametrize("compiled", [False, True], ids=["python", "compiled"])


def compiler() -> str | None:
    """The C compiler that the extension would be built with."""
    wanted = str(sysconfig.get_config_var("CC") or "cc").split()[0]
    return shutil.which(wanted) or shutil.which("cc") or shutil.which("gcc")


def native() -> "Native":
    """The compiled kernels; skips where they could not be built, and fails where they were not."""
    if built is None and compiler() is None:
        pytest.skip("the kernels could not be built: this machine has no C compiler")
    assert built is not None, (
        f"the kernels were not built, `make` builds them: {kernels.missing_because}"
    )
    return built


@contextmanager
def side(compiled: bool) -> Iterator[None]:
    """Inside, all work is done by the kernels, or all of it by their twins."""
    chosen = native() if compiled else None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernels, "native", chosen)
        yield
