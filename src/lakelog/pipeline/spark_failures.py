"""Spark's failures, in one line: it raises by several ways, and says a page each time."""

import importlib
import re
from typing import Final

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
