"""`lakelog pipeline`, and the one that `lakelog up` runs: with a real broker and a real Spark."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from tests.cli.conftest import Command
from tests.cli.test_serve import COMMAND, PATIENCE_S, free_port, port_of, serve, serving

SPARK_S = 200.0
"""Spark starts in ten seconds, and on a machine that does much else in a hundred."""


def run(*arguments: str, stdin: bytes = b"") -> "subprocess.CompletedProcess[bytes]":
    environment = {name: value for name, value in os.environ.items() if "LAKELOG" not in name}
    return subprocess.run(
        [*COMMAND, *arguments],
        input=stdin,
        capture_output=True,
        env=environment,
        timeout=SPARK_S,
        check=False,
    )


def test_contradictions_are_wrong_usage(command: Command) -> None:
    for wrong in (("--once", "--interval", "3"), ("--master", "local", "--remote", "sc://h")):
        ran = command("pipeline", *wrong)
        assert (ran.code, "exclude each other" in ran.err) == (2, True)
    assert command("pipeline", "--set", "pipeline.interval_s=0").code == 1
    assert "KEY=VALUE" in command("pipeline", "--set", "x").err


def test_without_java_one_sentence_names_what_to_install(
    command: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    ran = command("pipeline", "--once")
    assert ran.code == 1
    assert re.fullmatch(r"Error: the pipeline needs Java, .*install Java 17.*\n", ran.err)


def test_a_store_that_no_other_process_sees_is_refused(command: Command) -> None:
    ran = command("pipeline", "--once", "--set", "metadata.url=memory:")
    assert (ran.code, "memory of one broker" in ran.err) == (1, True)
    ran = command("pipeline", "--once", "--set", "objects.url=memory:")
    assert (ran.code, "memory of one process" in ran.err) == (1, True)
    ran = command("pipeline", "--once", "--master", "spark://elsewhere:7077")
    assert (ran.code, "runs on other machines" in ran.err) == (1, True)


def test_without_a_cluster_nothing_is_started(tmp_path: Path) -> None:
    ran = run("pipeline", "--once", "--data", str(tmp_path))
    assert ran.returncode == 1
    assert b"start a broker first" in ran.stderr


@pytest.mark.timeout(300)
def test_once_compacts_what_is_there_and_names_what_it_cannot(tmp_path: Path) -> None:
    http = free_port()
    with serving("--http", f"127.0.0.1:{http}", data=tmp_path) as (_, port):
        here = ["-b", f"127.0.0.1:{port}"]
        found: list[set[Path]] = []
        for topic in ("good", "bad"):
            lines = b"".join(b"%s %d\n" % (topic.encode(), n) for n in range(50))
            assert run("records", "produce", topic, *here, stdin=lines).returncode == 0
            found.append(set((tmp_path / "objects").rglob("*.wo")))
        fresh = found[1] - found[0]
        for path in fresh:
            content = bytearray(path.read_bytes())
            content[-20] ^= 1
            path.write_bytes(content)
        ran = run("pipeline", "--once", "--json", "--master", "local[2]", "--data", str(tmp_path))
        assert ran.returncode == 1, ran.stderr
        rows = {row["topic"]: row for row in json.loads(ran.stdout)}
        assert (rows["good"]["rows"], rows["good"]["files"]) == (50, 1)
        assert rows["good"]["problems"] == []
        assert (rows["bad"]["rows"], rows["bad"]["behind_records"]) == (0, 50)
        assert b"Problem: topic bad, partition 0:" in ran.stderr
        assert next(iter(fresh)).name.encode() in ran.stderr
        assert not [line for line in ran.stderr.splitlines() if b"WARN" in line or b"Exc" in line]
        read = run("records", "consume", "good", "--offset", ":end", *here)
        values = [json.loads(line)["value"] for line in read.stdout.splitlines()]
        assert values == [f"good {n}" for n in range(50)]


def events(process: "subprocess.Popen[str]") -> Iterator[dict[str, object]]:
    assert process.stderr is not None
    for line in process.stderr:
        yield json.loads(line)


@pytest.mark.proof
@pytest.mark.timeout(300)
def test_up_runs_a_pipeline_beside_and_both_end_together(tmp_path: Path) -> None:
    process = serve("--http", f"127.0.0.1:{free_port()}", data=tmp_path, command="up")
    try:
        here = ["-b", f"127.0.0.1:{port_of(process)}"]
        settings = ["--config", "lakelog.table.freshness.ms=1000"]
        assert run("topics", "create", "t", *settings, *here).returncode == 0
        assert run("records", "produce", "t", *here, stdin=b"a\nb\nc\n").returncode == 0
        for said in events(process):
            if said["event"] == "pipeline_compacted":
                assert (said["topic"], said["rows"]) == ("t", 3)
                break
        children = psutil.Process(process.pid).children(recursive=True)
        assert any("pipeline" in child.cmdline() for child in children)
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0
        _, alive = psutil.wait_procs(children, timeout=PATIENCE_S)
        assert not alive
    finally:
        process.kill()
        process.communicate(timeout=PATIENCE_S)


@pytest.mark.proof
@pytest.mark.timeout(300)
def test_a_pipeline_ends_with_a_broker_that_was_killed(tmp_path: Path) -> None:
    process = serve("--http", f"127.0.0.1:{free_port()}", data=tmp_path, command="up")
    try:
        for said in events(process):
            if said["event"] == "pipeline_spark_starting":
                break
        children = psutil.Process(process.pid).children(recursive=True)
        process.kill()
        _, alive = psutil.wait_procs(children, timeout=PATIENCE_S)
        assert not alive
    finally:
        process.kill()
        process.communicate(timeout=PATIENCE_S)


def test_no_pipeline_means_none(tmp_path: Path) -> None:
    process = serve(
        "--http", f"127.0.0.1:{free_port()}", "--no-pipeline", data=tmp_path, command="up"
    )
    try:
        port_of(process)
        assert process.stdout is not None
        said = ""
        while "Press Ctrl+C" not in said:
            said += process.stdout.readline()
        assert re.search(r"Pipeline +off", said)
        assert not psutil.Process(process.pid).children()
    finally:
        process.kill()
        process.communicate(timeout=PATIENCE_S)


def test_the_command_beside_has_the_brokers_configuration() -> None:
    from lakelog.cli.pipeline import command_beside  # noqa: PLC0415 - the other tests run processes

    given = {
        "log_level": "info",
        "file": Path("a.toml"),
        "data": "d",
        "settings": ("tables.namespace=n", "x=y"),
    }
    assert command_beside(given, "http://127.0.0.1:1")[1:] == [
        *["-m", "lakelog.cli.main", "pipeline", "--beside", "--server", "http://127.0.0.1:1"],
        *["--log-level", "info", "--config", "a.toml", "--data", "d"],
        *["--set", "tables.namespace=n", "--set", "x=y"],
    ]
    assert command_beside(given, "")[0] == sys.executable
