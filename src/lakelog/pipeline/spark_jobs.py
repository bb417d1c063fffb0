"""How one job among many is named and ended: the only module that touches Spark's context.

The context exists only where this process drives Spark; Spark Connect has tags instead. (A session
has tags without Connect too, but knows them by thread, so that nobody else can end the job.)
"""

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Jobs(Protocol):
    """Names for the jobs that a thread starts."""

    def begin(self, name: str) -> None:
        """What this thread starts from now on has that name."""

    def end(self, name: str) -> None:
        """What this thread starts from now on has none."""

    def cancel(self, name: str) -> None:
        """End what runs under that name; any thread may ask."""


class DrivenJobs:
    """Job groups of the context."""

    def __init__(self, spark: "SparkSession") -> None:
        self._context = spark.sparkContext

    def begin(self, name: str) -> None:
        """What this thread starts from now on has that name."""
        self._context.setJobGroup(name, name, interruptOnCancel=True)

    def end(self, name: str) -> None:
        """Nothing to do: a thread's next job brings its own name."""

    def cancel(self, name: str) -> None:
        """End what runs under that name; any thread may ask."""
        self._context.cancelJobGroup(name)


class RemoteJobs:
    """Tags of Spark Connect."""

    def __init__(self, spark: "SparkSession") -> None:
        self._spark = spark

    def begin(self, name: str) -> None:
        """What this thread starts from now on has that name."""
        self._spark.addTag(name)

    def end(self, name: str) -> None:
        """What this thread starts from now on has none."""
        self._spark.removeTag(name)

    def cancel(self, name: str) -> None:
        """End what runs under that name; any thread may ask."""
        self._spark.interruptTag(name)
