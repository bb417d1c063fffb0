"""What clients in other languages say is read as ours is, and figures are of the right time."""

import os
import re
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
from bench.broker import process_clock
from bench.clients import Effort, program
from bench.franz_go import SOURCES
from bench.java_producer import ToolError, arguments, parse
from bench.jobs import FranzGoJob, JavaJob, Job, Outcome, ProduceJob, SaturateJob, WriteJob

SHAPE: dict[str, Any] = {
    "partitions": 16,
    "record_bytes": 100,
    "batch_bytes": 1_000,
    "seconds": 1.0,
    "bytes_max": 9,
}
PRINTED = """
499 records sent, 99.8 records/sec (0.01 MB/sec), 3.0 ms avg latency, 181.0 ms max latency.
1000 records sent, 250.0 records/sec (0.02 MB/sec), 3.61 ms avg latency, 181.00 ms max latency.

Metric Name                                                           Value
producer-metrics:batch-size-avg:{client-id=perf-producer-client}    : 970.500
producer-metrics:request-total:{client-id=perf-producer-client}     : 40.000
producer-node-metrics:request-total:{client-id=perf-producer-client, node-id=node-1} : 38.000
"""


def test_the_java_tool_is_judged_by_its_last_summary_and_its_own_metrics() -> None:
    outcome = parse(PRINTED, 100)
    assert outcome == Outcome(100_000, 1_000, 4.0, requests=40, batch_bytes=970.5)
    with pytest.raises(ToolError, match="no summary"):
        parse("nothing", 100)


def test_the_java_tool_is_told_records_for_the_bytes() -> None:
    job = JavaJob(**SHAPE | {"bytes_max": 1_000}, bootstrap="b:1", topic="t", command=("java",))
    told = arguments(job)
    assert told[told.index("--num-records") + 1] == "10"
    assert "batch.size=1000" in told


def test_the_go_client_has_the_fields_of_the_protocol() -> None:
    source = (SOURCES / "main.go").read_text()
    structs = re.findall(r"^type (\w+) struct \{(.*?)^\}", source, re.MULTILINE | re.DOTALL)
    fields = {name: set(re.findall(r'json:"(\w+)"', body)) for name, body in structs}
    assert fields["job"] == set(WriteJob.__struct_fields__)
    assert fields["outcome"] == set(Outcome.__struct_fields__) - {"latencies_ms"}


@pytest.mark.parametrize(
    "job",
    [
        ProduceJob(**SHAPE),
        SaturateJob(**SHAPE, in_flight=8),
        JavaJob(**SHAPE, command=("java", "-cp", "x")),
        FranzGoJob(**SHAPE, program="/bin/franz"),
    ],
)
def test_a_job_arrives_as_it_was_sent_at_a_program_of_its_own(job: Job) -> None:
    assert msgspec.json.decode(msgspec.json.encode(job), type=Job) == job
    assert program(job)[-1] in {
        "bench.worker",
        "bench.saturate",
        "bench.java_producer",
        "/bin/franz",
    }


def test_figures_are_of_all_clients_and_of_the_slowest_ones_time() -> None:
    outcomes = (Outcome(3_000_000, 3, 2.0, requests=300), Outcome(1_000_000, 1, 1.0, requests=100))
    effort = Effort(outcomes, cpu_seconds=0.5, wall_seconds=2.0, rss_bytes=7)
    assert effort.megabytes_per_cpu_second() == 8.0
    assert effort.megabytes_per_second() == 2.0
    assert effort.microseconds_per_request() == 1_250.0


def test_a_client_that_counts_no_requests_has_no_cost_of_one() -> None:
    assert Effort((Outcome(1, 1, 1.0),), 0.5, 1.0, 7).microseconds_per_request() == 0.0


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="Linux's clocks of processes")
def test_the_clock_of_a_process_is_that_of_its_cpu_time() -> None:
    before = time.process_time()
    seen = time.clock_gettime(process_clock(os.getpid()))
    assert before <= seen <= time.process_time()
