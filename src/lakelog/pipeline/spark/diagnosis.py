"""What is wrong with Java, with Spark or with its executors, said in one line.

- Java is looked for before Spark is started: Spark's own report of a missing one helps nobody.
- Spark's failures are put into one line: it raises by several ways, and says a page each time.
- Executors are asked what they are like at the start, and again now and then (`ask`). Each slot
  answers once with its versions, in plain values and by a function that travels with its code, for
  an executor without Lakelog must be able to answer too. The number of answers is the number of
  slots.
"""

import importlib
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from lakelog import __version__
from lakelog.model.failures import Refused

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAVA_MIN: Final = 17
JAVA_ANSWER_S: Final = 30.0
"""A Java that does not tell its version within this time is none."""

JAVA_REMEDY: Final = (
    f"install Java {JAVA_MIN} or newer (Debian and Ubuntu: apt install openjdk-17-jre-headless;"
    " macOS: brew install openjdk@17) or set JAVA_HOME to one"
)
_JAVA_VERSION: Final = re.compile(r'version "(?P<first>\d+)(\.(?P<second>\d+))?')


@dataclass(frozen=True, slots=True)
class Java:
    """A Java that can run Spark."""

    path: str
    major: int


def find_java(environment: Mapping[str, str]) -> Java:
    """The Java that Spark will use: that of JAVA_HOME, else that of PATH; raises `Refused`."""
    path = _java_path(environment)
    try:
        said = subprocess.run(  # noqa: S603 - the user's own Java
            [path, "-version"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=JAVA_ANSWER_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Refused(f"the pipeline needs Java, but {path} does not run: {JAVA_REMEDY}") from error
    major = parse_major(said.stderr + said.stdout)
    if major is None:
        raise Refused(
            f"the pipeline needs Java, but {path} does not say its version: {JAVA_REMEDY}"
        )
    if major < JAVA_MIN:
        raise Refused(f"the pipeline needs Java, but {path} is version {major}: {JAVA_REMEDY}")
    return Java(path, major)


def parse_major(said: str) -> int | None:
    """The major version in what `java -version` says, None where there is none."""
    found = _JAVA_VERSION.search(said)
    if found is None:
        return None
    first = int(found["first"])
    # Java 8 called itself 1.8.
    return int(found["second"]) if first == 1 and found["second"] else first


def _java_path(environment: Mapping[str, str]) -> str:
    home = environment.get("JAVA_HOME", "")
    if home:
        # As Spark's scripts do: a JAVA_HOME that is set counts, even if it is wrong.
        path = Path(home) / "bin" / "java"
        if not path.is_file():
            raise Refused(f"the pipeline needs Java, but JAVA_HOME has no {path}: {JAVA_REMEDY}")
        return str(path)
    found = shutil.which("java", path=environment.get("PATH", ""))
    if found is None:
        raise Refused(f"the pipeline needs Java, and there is none: {JAVA_REMEDY}")
    return found


CHARACTERS_MAX: Final = 400
_PREAMBLE: Final = re.compile(r"An error occurred while calling [\w.]+\s*:?\s*", re.DOTALL)
_CLASS: Final = re.compile(r"^(?:[\w$]+\.)+[\w$]*(?:Exception|Error): ")
_SIGNS_OF_LOSS: Final = (
    "Answer from Java side is empty",
    "Cannot call methods on a stopped SparkContext",
    "SparkContext was shut down",
    "INVALID_HANDLE.SESSION",  # the server of Spark Connect has forgotten us
)
_MODULE: Final = re.compile(r"No module named '(?P<name>[\w.]+)'")


def spark_failures() -> tuple[type[Exception], ...]:
    """What a call into Spark may raise when Spark fails; everything else is a bug."""
    protocol = importlib.import_module("py4j.protocol")  # only who uses Spark loads it
    errors = importlib.import_module("pyspark.errors")
    found = (errors.PySparkException, protocol.Py4JError, OSError)
    try:
        remote = importlib.import_module("grpc")
    except ImportError:  # only Spark Connect needs it
        return found
    return (*found, remote.RpcError)


def is_lost(error: Exception, text: str) -> bool:
    """Whether Spark itself is gone, and no later job can succeed."""
    protocol = importlib.import_module("py4j.protocol")
    if isinstance(error, protocol.Py4JNetworkError | ConnectionError):
        return True
    return any(sign in text for sign in _SIGNS_OF_LOSS)


def text_of(error: Exception) -> str:
    """What it says; a dead Spark cannot even be asked for that."""
    try:
        return str(error)
    except spark_failures():
        return type(error).__name__


def one_line(text: str) -> str:
    """The cause, without the stack of the Java side."""
    said = _PREAMBLE.sub("", text, count=1) or text
    # What the Python side said is the cause, wherever there is one.
    _, traceback, raised = said.rpartition("Traceback (most recent call last):")
    if traceback:
        lines = [line for line in raised.splitlines() if line and not line[0].isspace()]
        said = next((line for line in lines if not line.startswith("at ")), said)
    said = said.partition("\n\tat ")[0].partition("JVM stacktrace")[0]
    said = " ".join(_CLASS.sub("", said.strip()).split())
    return said if len(said) <= CHARACTERS_MAX else said[: CHARACTERS_MAX - 1] + "…"


def missing_module(text: str) -> str | None:
    """The module that an executor could not import, if that was it."""
    found = _MODULE.search(text)
    return found["name"] if found else None


EXECUTOR_ROW: Final = (
    "host string, process int, python string, lakelog string, pyarrow string, lacks string"
)
ROWS: Final = 10_000
"""More than any cluster has slots: Spark makes one part of the range for each."""

NEEDED: Final = ("numpy", "crc32c", "lz4", "cramjam", "msgspec")
NEEDED_REMOTE: Final = "obstore"
EXECUTOR_REMEDY: Final = (
    "give executors the same environment: an image, or one made by venv-pack that spark.archives"
    " names"
)


@dataclass(frozen=True, slots=True)
class ExecutorReport:
    """One slot's answer."""

    host: str
    process: int
    python: str
    lakelog: str
    """Empty where it is not installed, as for pyarrow."""
    pyarrow: str
    lacks: str
    """Modules that are missing, with commas between."""


def this_process() -> ExecutorReport:
    """What executors should be like."""
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    return ExecutorReport("", 0, python, __version__, metadata.version("pyarrow"), "")


def ask(spark: "SparkSession", *, needs_remote: bool) -> tuple[ExecutorReport, ...]:
    """The answer of each slot; raises what Spark raises."""
    needed = (*NEEDED, NEEDED_REMOTE) if needs_remote else NEEDED
    rows = spark.range(0, ROWS).mapInArrow(asking(needed), EXECUTOR_ROW).collect()
    return tuple(ExecutorReport(*row) for row in rows)


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


def judge(found: Sequence[ExecutorReport], wanted: ExecutorReport) -> None:
    """Raises `Refused` with what is wrong with the first executor that does not fit."""
    for executor in found:
        problem = _problem(executor, wanted)
        if problem:
            raise Refused(f"executor {executor.host} {problem}: {EXECUTOR_REMEDY}")


def _problem(found: ExecutorReport, wanted: ExecutorReport) -> str:
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
        return f"executors have no {module.partition('.')[0]}: {EXECUTOR_REMEDY}"
    if "PYTHON_VERSION_MISMATCH" in text:
        return (
            f"executors have another Python than this one ({this_process().python}):"
            f" set PYSPARK_PYTHON to the same one there, or {EXECUTOR_REMEDY}"
        )
    return None
