"""The directory of one Spark session: its settings, its log and its temporary files.

It is gone when the session ends. A process that was killed leaves its directory behind; who holds
none of its locks is dead, so the next session removes it.
"""

import contextlib
import fcntl
import os
import shutil
import tempfile
from pathlib import Path
from typing import Final

PREFIX: Final = "lakelog-spark-"
_LOCK: Final = "lock"


class SparkDirectory:
    """A directory that is ours as long as we hold its lock."""

    def __init__(self, root: Path | None = None) -> None:
        """Make it below `root`, else below the system's directory for temporary files."""
        root = Path(tempfile.gettempdir()) if root is None else root
        _remove_left_behind(root)
        self.path = Path(tempfile.mkdtemp(prefix=PREFIX, dir=root))
        self._lock = os.open(self.path / _LOCK, os.O_CREAT | os.O_RDWR, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)

    def write(self, name: str, text: str) -> None:
        """Put a small file there."""
        (self.path / name).write_text(text)

    def remove(self) -> None:
        """Delete everything; what Spark still holds open is left to the system."""
        shutil.rmtree(self.path, ignore_errors=True)
        with contextlib.suppress(OSError):
            os.close(self._lock)


def _remove_left_behind(root: Path) -> None:
    for lock in sorted(root.glob(f"{PREFIX}*/{_LOCK}")):
        try:
            descriptor = os.open(lock, os.O_RDWR)
        except OSError:  # somebody else's, or gone meanwhile
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(lock.parent, ignore_errors=True)
        except OSError:  # held: its process lives
            continue
        finally:
            os.close(descriptor)
