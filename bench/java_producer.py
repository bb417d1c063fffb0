"""A client process: runs Kafka's `kafka-producer-perf-test` as told on standard input.

The tool knows no protocol of ours, so its start falls between `go` and the outcome; the seconds are
the tool's own, from its first record on. Its metrics say how many requests it sent.
"""

import re
import subprocess

from bench.jobs import JavaJob, Outcome, serve, wait_for_go

RUN_TIMEOUT_S = 180.0
SUMMARY = re.compile(r"^(\d+) records sent, ([\d.]+) records/sec", re.MULTILINE)
METRIC = re.compile(r"^producer-metrics:([\w-]+):\{client-id=[^}]*\}\s*:\s*([\d.]+)", re.MULTILINE)


class ToolError(RuntimeError):
    """The tool failed, or printed what we do not understand."""


def arguments(job: JavaJob) -> list[str]:
    """Return what the tool is told: its defaults but for batches, and all acknowledgements."""
    return [
        *("--bootstrap-server", job.bootstrap, "--topic", job.topic),
        *("--num-records", str(max(job.bytes_max // job.record_bytes, 1))),
        *("--record-size", str(job.record_bytes), "--throughput", "-1", "--print-metrics"),
        *("--command-property", "acks=all", f"batch.size={job.batch_bytes}"),
        f"linger.ms={job.linger_ms:.0f}",
    ]


def parse(printed: str, record_bytes: int) -> Outcome:
    """Read the tool's last summary and its metrics."""
    summaries = SUMMARY.findall(printed)
    if not summaries:
        raise ToolError(f"no summary in {printed[-600:]!r}")
    # The lines before the last are of intervals, the last is of everything.
    records, per_second = int(summaries[-1][0]), float(summaries[-1][1])
    metrics = {name: float(value) for name, value in METRIC.findall(printed)}
    return Outcome(
        payload_bytes=records * record_bytes,
        records=records,
        seconds=records / per_second,
        requests=int(metrics.get("request-total", 0)),
        batch_bytes=metrics.get("batch-size-avg", 0.0),
    )


def produce(job: JavaJob) -> Outcome:
    """Run the tool once."""
    wait_for_go()
    done = subprocess.run(
        [*job.command, *arguments(job)],
        capture_output=True,
        text=True,
        timeout=RUN_TIMEOUT_S,
        check=False,
    )
    if done.returncode:
        raise ToolError(f"the tool ended with {done.returncode}: {done.stderr[-600:]}")
    return parse(done.stdout, job.record_bytes)


if __name__ == "__main__":
    serve(JavaJob, produce)
