"""One job by Spark's Kafka connector and by ours: the small form, in a process of its own.

The connector must be on the class path when Spark starts, so no session of other tests can be used.
"""

import subprocess
import sys
from pathlib import Path

import pytest
from bench.peer import PeerAbsentError
from bench.spark_connector import find_connector
from tests.compat.spark_kafka import CASES, differs
from tests.compat.spark_kafka_writes import murmur2

ROOT = Path(__file__).parents[2]
RUN_S = 300.0


@pytest.mark.proof
def test_a_job_for_kafka_runs_with_another_format_name_and_connection() -> None:
    try:
        find_connector(fetch=False)
    except PeerAbsentError as reason:
        pytest.skip(f"{reason}: `python -m tests.compat.spark_kafka` fetches it")
    done = subprocess.run(
        [sys.executable, "-m", "tests.compat.spark_kafka", "--quick", "--cached"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=RUN_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    quick = [case for case in CASES if case.is_quick]
    for arm in ("kafka on ours", "lakelog on ours"):
        assert sum(line.startswith(arm) for line in done.stdout.splitlines()) == len(quick)


def test_results_that_differ_say_where() -> None:
    assert differs(((1, 2), (3,)), ((1, 2), (3,))) == ""
    assert "missing [(2,)]" in differs(((1,),), ((1,), (2,)))
    assert "too much [(9,)]" in differs(((1,), (9,)), ((1,),))
    assert differs("refused", ()) == "'refused' and not ()"
    assert differs((True, ((1,),)), (True, ((2,),))) == "1 and not 2"


def test_the_hash_of_keys_is_that_of_the_java_client() -> None:
    # What Kafka's own test of its hash expects.
    known = {
        b"21": -973932308,
        b"foobar": -790332482,
        b"a-little-bit-long-string": -985981536,
        b"a-little-bit-longer-string": -1486304829,
    }
    assert {key: murmur2(key) for key in known} == {
        key: value & 0x7FFFFFFF for key, value in known.items()
    }
