"""What executors are like: asked at the start, and again now and then.

Each slot answers once with its versions, in plain values and by a function that travels with its
code, for an executor without Lakelog must be able to answer too. The number of answers is the
number of slots.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import metadata
from typing import TYPE_CHECKING, Any, Final

from lakelog import __version__
from lakelog.model.failures import Refused
from lakelog.pipeline.spark_failures import missing_module

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROW: Final = "host string, process int, python string, lakelog string, pyarrow string, lacks string"
ROWS: Final = 10_000
"""More than any cluster has slots: Spark makes one part of the range for each."""

NEEDED: Final = ("numba", "numpy", "crc32c", "lz4", "cramjam", "msgspec")
NEEDED_REMOTE: Final = "obstore"
REMEDY: Final = (
    "give executors the same environment: an image, or one made by venv-pack that spark.archives"
    " names"
)


@dataclass(frozen=True, slots=True)
class Executor:
    """One slot's answer."""

    host: str
    process: int
    python: str
    lakelog: str
    """Empty where it is not installed, as for pyarrow."""
    pyarrow: str
    lacks: str
    """Modules that are missing, with commas between."""


def this_process() -> Executor:
    """What executors should be like."""
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    return Executor("", 0, python, __version__, metadata.version("pyarrow"), "")


def ask(spark: "SparkSession", *, needs_remote: bool) -> tuple[Executor, ...]:
    """The answer of each slot; raises what Spark raises."""
    needed = (*NEEDED, NEEDED_REMOTE) if needs_remote else NEEDED
    rows = spark.range(0, ROWS).mapInArrow(asking(needed), ROW).collect()
    return tuple(Executor(*row) for row in rows)


def asking(needed: Sequence[str]) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """The function that an executor runs; it is nested so that its code travels, not its name."""

    def answer(batches: Iterator[Any]) -> Iterator[Any]:
        import os  # noqa: PLC0415 - another machine runs this
        import platform  # noqa: PLC0415 - as above
        from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415 - as above
        from importlib.util import find_spec  # noqa: PLC0415 - as above

        import pyarrow as pa  # noqa: PLC0415 - as above

        def installed(name: str) -> str:
            try:
                return version(name) if find_spec(name) else ""
            except PackageNotFoundError:
                return ""

        for _ in batches:
            pass
        row = {
            "host": platform.node(),
            "process": os.getpid(),
            "python": ".".join(platform.python_version_tuple()[:2]),
            "lakelog": installed("lakelog"),
            "pyarrow": installed("pyarrow"),
            "lacks": ",".join(name for name in needed if find_spec(name) is None),
        }
        schema = [(name, pa.int32() if name == "process" else pa.string()) for name in row]
        yield pa.RecordBatch.from_pylist([row], schema=pa.schema(schema))

    return answer


def judge(found: Sequence[Executor], wanted: Executor) -> None:
    """Raises `Refused` with what is wrong with the first executor that does not fit."""
    for executor in found:
        problem = _problem(executor, wanted)
        if problem:
            raise Refused(f"executor {executor.host} {problem}: {REMEDY}")


def _problem(found: Executor, wanted: Executor) -> str:
    if not found.lakelog:
        return "has no lakelog"
    if found.lakelog != wanted.lakelog:
        return f"has lakelog {found.lakelog}, and this is {wanted.lakelog}"
    if found.python != wanted.python:
        return f"has Python {found.python}, and this is {wanted.python}"
    if found.pyarrow.partition(".")[0] != wanted.pyarrow.partition(".")[0]:
        return f"has pyarrow {found.pyarrow}, and this is {wanted.pyarrow}"
    return f"lacks {found.lacks}" if found.lacks else ""


def explain(text: str) -> str | None:
    """What an executor that cannot even answer needs, if Spark's report tells."""
    module = missing_module(text)
    if module is not None:
        return f"executors have no {module.partition('.')[0]}: {REMEDY}"
    if "PYTHON_VERSION_MISMATCH" in text:
        return (
            f"executors have another Python than this one ({this_process().python}):"
            f" set PYSPARK_PYTHON to the same one there, or {REMEDY}"
        )
    return None
