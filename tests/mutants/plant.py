"""What a planted bug is: some text of the source replaced, and who must notice."""

from dataclasses import dataclass, field
from pathlib import Path

PACKAGE = "src/lakelog"
KERNELS = "native/"
"""What a changed file of the kernels begins with."""


@dataclass(frozen=True, slots=True)
class Change:
    """In a file of the package or of the kernels, `before` (there exactly once) becomes `after`."""

    file: str
    before: str
    after: str

    def path(self, root: Path) -> Path:
        """The file in a copy of the repository."""
        return root / self.file if self.file.startswith(KERNELS) else root / PACKAGE / self.file


@dataclass(frozen=True, slots=True)
class Plant:
    """A bug, and the tests or seeds of the simulation of which at least one must fail."""

    name: str
    changes: tuple[Change, ...]
    tests: tuple[str, ...] = ()
    seeds: range = field(default=range(0))


def plant(  # a row of the tables reads better without the nested names
    name: str,
    file: str,
    before: str,
    after: str,
    *,
    tests: tuple[str, ...] = (),
    seeds: range = range(0),
) -> Plant:
    """A bug of one change."""
    return Plant(name, (Change(file, before, after),), tests, seeds)
