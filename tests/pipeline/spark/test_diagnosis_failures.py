"""A page of Java becomes one line that says what happened."""

import pytest

from lakelog.pipeline.spark.diagnosis import (
    CHARACTERS_MAX,
    is_lost,
    missing_module,
    one_line,
    spark_failures,
    text_of,
)

ABORTED = """An error occurred while calling o199.collectToPython.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 9.0 failed 4
times, most recent failure: Python worker exited unexpectedly (crashed)
\tat org.apache.spark.api.python.BasePythonRunner.read(PythonRunner.scala:1136)
Caused by: java.io.EOFException
\tat java.base/java.io.DataInputStream.readInt(DataInputStream.java:386)
"""
RAISED = """An error occurred while calling o1.collect.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 1 failed
Traceback (most recent call last):
  File "worker.py", line 1, in <module>
    import lakelog
ModuleNotFoundError: No module named 'lakelog'

\tat org.apache.spark.api.python.BasePythonRunner.read(PythonRunner.scala:1136)
"""


def test_the_stack_of_the_java_side_is_left_out() -> None:
    assert one_line(ABORTED) == (
        "Job aborted due to stage failure: Task 0 in stage 9.0 failed 4 times, most recent failure:"
        " Python worker exited unexpectedly (crashed)"
    )


def test_what_the_python_side_raised_is_the_cause() -> None:
    assert one_line(RAISED) == "ModuleNotFoundError: No module named 'lakelog'"
    assert missing_module(RAISED) == "lakelog"
    assert missing_module(ABORTED) is None


def test_a_report_that_says_nothing_is_kept() -> None:
    assert one_line("An error occurred while calling o1.collect") != ""


def test_a_line_has_a_limit() -> None:
    assert len(one_line("x " * 10_000)) == CHARACTERS_MAX


@pytest.mark.parametrize(
    ("error", "lost"),
    [
        (ConnectionRefusedError(111, "Connection refused"), True),
        (RuntimeError("Cannot call methods on a stopped SparkContext."), True),
        (RuntimeError("[INVALID_HANDLE.SESSION_CLOSED] The handle is invalid"), True),
        (RuntimeError("Job aborted due to stage failure"), False),
    ],
)
def test_a_spark_that_is_gone_is_told_from_a_job_that_failed(error: Exception, lost: bool) -> None:
    assert is_lost(error, text_of(error)) is lost


def test_an_error_that_cannot_be_asked_still_has_a_name() -> None:
    class UnaskableError(ConnectionError):
        def __str__(self) -> str:
            raise ConnectionRefusedError

    assert isinstance(UnaskableError(), spark_failures())
    assert text_of(UnaskableError()) == "UnaskableError"
