"""What the package itself has, for type checkers."""

from lakelog import tables as tables
from lakelog.reading.read import open as open  # noqa: A004 - `lakelog.open` reads well
from lakelog.reading.read import read as read

__version__: str
