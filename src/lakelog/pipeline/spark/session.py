"""One Spark session, started once and kept: a start takes ten seconds, a job on it 0.2.

Rules: what is missing is said in one sentence before anything is started; what Spark says goes to a
file, of which a failed start shows the first error; nothing is left behind when it ends. A session
that lost its Spark is of no more use: end the process, and start another.

The directory of a session holds its settings, its log and its temporary files, and is gone when the
session ends. A process that was killed leaves its directory behind; who holds none of its locks is
dead, so the next session removes it.

One job among many is named and ended by `Jobs`, and nothing else touches Spark's context. The
context exists only where this process drives Spark; Spark Connect has tags instead. (A session has
tags without Connect too, but knows them by thread, so that nobody else can end the job.)
"""

import contextlib
import fcntl
import importlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from lakelog.model.failures import Refused, Unavailable
from lakelog.pipeline.spark.diagnosis import find_java, one_line, spark_failures, text_of
from lakelog.pipeline.spark.settings import (
    LOG_FILE,
    LOG_SETTINGS,
    LOG_SETTINGS_FILE,
    POOLS,
    POOLS_FILE,
    SparkOptions,
    environment_of,
    settings_of,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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


class Jobs(Protocol):
    """Names for the jobs that a thread starts."""

    def begin(self, name: str) -> None:
        """What this thread starts from now on has that name."""

    def end(self, name: str) -> None:
        """What this thread starts from now on has none."""

    def cancel(self, name: str) -> None:
        """End what runs under that name; any thread may ask."""


class GroupedJobs:
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


class TaggedJobs:
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


END_S: Final = 10.0
"""How long Spark's process may take to end by itself."""

MISSING: Final = "the pipeline needs PySpark: pip install 'lakelog[spark]'"
MISSING_CONNECT: Final = "Spark Connect needs its client: pip install 'pyspark[connect]'"


class WarmSession:
    """A session and the directory that goes with it."""

    def __init__(
        self, spark: "SparkSession", jobs: Jobs, directory: SparkDirectory, process: Any
    ) -> None:
        self.spark = spark
        self.jobs = jobs
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = process

    def ending(self) -> str | None:
        """How Spark's process ended, None as long as it runs or is not ours."""
        code = None if self._process is None else self._process.poll()
        return None if code is None else f"its Java process ended with code {code}"

    def close(self) -> None:
        """End Spark and remove its files."""
        with contextlib.suppress(*spark_failures()):  # it may be dead, which is what we want
            self.spark.stop()
        if self._process is not None:
            _forget_gateway()
            _end(self._process)
        self._directory.remove()


def check_requirements(options: SparkOptions, environment: Mapping[str, str]) -> None:
    """Raises `Refused` with what to install; takes the time of a `java -version`."""
    if find_spec("pyspark") is None:
        raise Refused(MISSING)
    if options.is_connect and find_spec("grpc") is None:
        raise Refused(MISSING_CONNECT)
    if not options.is_connect or options.remote.startswith("local"):
        find_java(environment)


class SessionStart:
    """The start of a session, on a thread; it takes seconds, and can be given up.

    Not to be run on the main thread, where PySpark would take SIGINT for itself.
    """

    def __init__(self, options: SparkOptions) -> None:
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None
        self._is_cancelled = False

    def cancel(self) -> None:
        """Have `run` end soon, with `Unavailable`; any thread may ask."""
        self._is_cancelled = True
        if self._process is not None:
            self._process.kill()

    def run(self) -> WarmSession:
        """Start Spark, or reach the remote one; raises `Refused` and `Unavailable`."""
        options = self._options
        check_requirements(options, os.environ)  # noqa: TID251 - Spark reads the environment, too
        directory = SparkDirectory()
        try:
            return _reach(options, directory) if options.is_connect else self._start(directory)
        except spark_failures() as error:
            reason = _first_error(directory.path / LOG_FILE) or text_of(error)
            directory.remove()
            raise Unavailable(f"Spark did not start: {one_line(reason)}") from error
        except BaseException:
            directory.remove()
            raise

    def _go_on(self) -> None:
        if self._is_cancelled:
            raise Unavailable("the start of Spark was given up")

    def _start(self, directory: SparkDirectory) -> WarmSession:
        """A driver of our own, in a Java process that ends when we do."""
        from pyspark import SparkConf, SparkContext  # noqa: PLC0415 - only who uses Spark loads it
        from pyspark.sql import SparkSession  # noqa: PLC0415 - as above

        directory.write(LOG_SETTINGS_FILE, LOG_SETTINGS)
        directory.write(POOLS_FILE, POOLS)
        launch_gateway = importlib.import_module("pyspark.java_gateway").launch_gateway
        conf = SparkConf(loadDefaults=False)
        for name, value in settings_of(self._options, str(directory.path)).items():
            conf.set(name, value)
        with _environment(self._options), (directory.path / LOG_FILE).open("ab") as log:
            gateway = launch_gateway(conf, {"stdout": log, "stderr": log})
            self._process = gateway.proc
            try:
                self._go_on()
                SparkContext._ensure_initialized(gateway=gateway)  # noqa: SLF001 - keeps its output
                spark = SparkSession.builder.config(conf=conf).getOrCreate()
            except BaseException:
                _forget_gateway()
                _end(gateway.proc)
                raise
        return WarmSession(spark, GroupedJobs(spark), directory, gateway.proc)


def _reach(options: SparkOptions, directory: SparkDirectory) -> WarmSession:
    from pyspark.sql import SparkSession  # noqa: PLC0415 - only who uses Spark loads it

    builder = SparkSession.builder.remote(options.remote)
    for name, value in options.settings.items():
        builder = builder.config(name, value)
    with _environment(options):
        spark = builder.getOrCreate()
    return WarmSession(spark, TaggedJobs(spark), directory, None)


@contextlib.contextmanager
def _environment(options: SparkOptions) -> Iterator[None]:
    """The environment in which Spark starts; workers inherit it."""
    environment = os.environ  # noqa: TID251 - PySpark reads nothing else
    wanted = environment_of(options, sys.executable)
    before = {name: environment.get(name) for name in (*wanted, "SPARK_REMOTE")}
    if not options.is_connect:
        environment.pop("SPARK_REMOTE", None)  # else PySpark takes it for a contradiction
    environment.update(wanted)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                environment.pop(name, None)
            else:
                environment[name] = value


def _forget_gateway() -> None:
    """A next try of this process must not use a Java process that has ended."""
    from pyspark import SparkContext  # noqa: PLC0415 - only who uses Spark loads it

    SparkContext._gateway = None  # noqa: SLF001 - there is no other way
    SparkContext._jvm = None  # noqa: SLF001 - as above


def _end(process: "subprocess.Popen[bytes]") -> None:
    """Spark's Java process ends when its standard input does."""
    if process.stdin is not None:
        with contextlib.suppress(OSError):
            process.stdin.close()
    try:
        process.wait(END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _first_error(log: Path) -> str:
    """The first error in Spark's log, which the others follow from; empty when there is none."""
    try:
        lines = log.read_text(errors="replace").splitlines()
    except OSError:
        return ""
    for sign in ("Exception: ", "rror: "):
        found = [line for line in lines if sign in line]
        if found:
            return found[0]
    return ""
