"""What the package itself has, for type checkers."""

from lakelog import tables as tables
from lakelog.lake.read.arrow_reader import open as open  # noqa: A004 - `lakelog.open` reads well
from lakelog.lake.read.arrow_reader import read as read

__version__: str
