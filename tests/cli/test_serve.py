"""`lakelog serve` as a process: it starts, tells, refuses and stops as it should."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from lakelog.clock import SystemClock, SystemEntropy
from lakelog.index.remote_index import RemoteIndex
from lakelog.kafka_client.dialing import dial
from lakelog.meta import keys
from lakelog.meta.sqlite import SqliteMetadataStore
from lakelog.topics.cluster import ClusterRecord
from lakelog.wire.messages.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from lakelog.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from lakelog.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)

PATIENCE_S = 30.0
COMMAND = (sys.executable, "-m", "lakelog.cli.main")


def serve(*arguments: str, data: Path, command: str = "serve") -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [*COMMAND, command, "--listen", "127.0.0.1:0", "--data", str(data), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={name: value for name, value in os.environ.items() if "LAKELOG" not in name},
    )


def port_of(process: "subprocess.Popen[str]") -> int:
    """Read the log until it says where the broker listens."""
    assert process.stderr is not None
    for line in process.stderr:
        said = json.loads(line)
        if said["event"] == "serving":
            return int(said["listen"].rpartition(":")[2])
    raise AssertionError("the broker ended without serving")


@contextmanager
def serving(*arguments: str, data: Path) -> Iterator[tuple["subprocess.Popen[str]", int]]:
    process = serve(*arguments, data=data)
    try:
        yield process, port_of(process)
    finally:
        process.kill()
        process.communicate(timeout=PATIENCE_S)


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def refused(*arguments: str, data: Path) -> str:
    """What a start says that must not succeed."""
    process = serve(*arguments, data=data)
    _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 1, err
    assert "Traceback" not in err
    return err


def page(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=PATIENCE_S) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as other:
        with other:
            return other.code, other.read().decode()


def test_sigterm_answers_parked_fetches_and_exits_with_0(tmp_path: Path) -> None:
    async def parked(port: int, process: "subprocess.Popen[str]") -> FetchResponse:
        async with await dial(f"127.0.0.1:{port}") as client:
            topic = MetadataRequestTopic(name="waited-for")
            found = await client.call(MetadataRequest((topic,)), MetadataResponse)
            partition = FetchPartition(0, fetch_offset=0, partition_max_bytes=1 << 20)
            wanted = FetchTopic(found.topics[0].topic_id, (partition,), topic="waited-for")
            request = FetchRequest(max_wait_ms=60_000, min_bytes=1, topics=(wanted,))
            fetching = asyncio.ensure_future(client.call(request, FetchResponse))
            other = await dial(f"127.0.0.1:{port}")
            await other.call(MetadataRequest(None), MetadataResponse)  # the fetch went before it
            await other.close()
            process.send_signal(signal.SIGTERM)
            return await fetching

    with serving("--http", "", data=tmp_path) as (process, port):
        answer = asyncio.run(parked(port, process))
        assert answer.error_code == 0
        assert process.wait(PATIENCE_S) == 0


def test_the_http_port_tells_of_health_metrics_and_index(tmp_path: Path) -> None:
    http = free_port()
    with serving("--http", f"127.0.0.1:{http}", data=tmp_path) as (_, port):
        assert page(http, "/healthz") == (200, "ok\n")
        code, body = page(http, "/readyz")
        assert (code, json.loads(body)["ready"]) == (200, True)
        here = ["-b", f"127.0.0.1:{port}"]
        sent = [*COMMAND, "records", "produce", "t", *here]
        subprocess.run(sent, input=b"a\nb\n", check=True, capture_output=True)
        index = [*COMMAND, "admin", "index", "t", "0", "--http", f"127.0.0.1:{http}"]
        shown = subprocess.run(index, check=True, capture_output=True, text=True).stdout
        key, _, entry = shown.partition("  ")
        assert key.startswith("/lakelog/v1/streams/")
        assert key.split("/")[6] == "00000000000000000002"
        assert json.loads(entry)["startOffset"] == 0
        assert json.loads(entry)["path"].endswith(".wo")
        assert (tmp_path / "objects" / json.loads(entry)["path"]).is_file()
        assert 'lakelog_requests_total{api="Produce"} 1.0' in page(http, "/metrics")[1]
        assert page(http, "/admin/index?topic=t&partition=9")[0] == 404
        assert page(http, "/admin/index?topic=t&partition=x")[0] == 400


def test_a_running_broker_shows_its_tables_and_serves_catalog_and_index(tmp_path: Path) -> None:
    async def look() -> None:
        store = await SqliteMetadataStore.open(tmp_path / "metadata.db", SystemClock())
        index = await RemoteIndex.open(store, SystemClock(), SystemEntropy())
        topics = await index.topics()
        streams = topics[0].streams
        backlog = await index.backlog(streams)
        assert [found.head for found in backlog.values()] == [2]
        await index.close()
        await store.close()

    http = free_port()
    with serving("--http", f"127.0.0.1:{http}", data=tmp_path) as (_, port):
        sent = [*COMMAND, "records", "produce", "t", "-b", f"127.0.0.1:{port}"]
        subprocess.run(sent, input=b"a\nb\n", check=True, capture_output=True)
        asyncio.run(look())
        assert page(http, "/pipeline/v1/topics")[0] == 405
        deadline_s = time.monotonic() + PATIENCE_S
        code, body = 0, ""
        while code != 200 and time.monotonic() < deadline_s:
            code, body = page(http, "/iceberg/v1/namespaces/lakelog/tables/t")
        assert json.loads(body)["metadata"]["properties"]["lakelog.topic"] == "t"
        at = ["--http", f"127.0.0.1:{http}"]
        for command, said in (
            (["list"], "lakelog.t"),
            (["describe", "t"], "rows behind: 2"),
            (["snapshots", "t"], "SNAPSHOT_ID"),
        ):
            ran = subprocess.run(
                [*COMMAND, "tables", *command, *at], check=True, capture_output=True, text=True
            )
            assert said in ran.stdout
        shown = subprocess.run(
            [*COMMAND, "tables", "list", "--json", *at], check=True, capture_output=True
        )
        (row,) = json.loads(shown.stdout)
        assert (row["topic"], row["rows_behind"], row["snapshots"]) == ("t", 2, 0)
        code, body = page(http, "/admin/tables/absent")
        assert (code, json.loads(body)["error"]) == (404, "there is no topic 'absent'")


def test_up_prints_a_banner_with_addresses_that_work(tmp_path: Path) -> None:
    process = serve("--http", "", data=tmp_path, command="up")
    try:
        port = port_of(process)
        assert process.stdout is not None
        said = ""
        while "kafka-console-consumer.sh" not in said:
            said += process.stdout.readline()
        assert f"127.0.0.1:{port}" in said
        assert str(tmp_path / "metadata.db") in said
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_S) == 0
    finally:
        process.kill()
        process.communicate(timeout=PATIENCE_S)


def test_an_open_address_is_warned_of_loudly(tmp_path: Path) -> None:
    process = serve("--http", "", "--set", "broker.listen=0.0.0.0:0", data=tmp_path)
    try:
        port_of(process)
        assert process.stderr is not None
        assert process.stderr.readline().startswith("WARNING: 0.0.0.0:")
    finally:
        process.kill()
        process.communicate(timeout=PATIENCE_S)


def test_a_port_in_use_is_refused(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        said = refused("--listen", f"127.0.0.1:{port}", "--http", "", data=tmp_path)
        assert f"port {port} on 127.0.0.1 is in use" in said
        said = refused("--http", f"127.0.0.1:{port}", data=tmp_path)
        assert f"port {port} on 127.0.0.1 is in use" in said


def test_a_data_directory_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert "file: cannot be made" in refused("--http", "", data=tmp_path / "file")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_directory_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    locked = tmp_path / "locked"
    locked.mkdir(mode=0o500)
    said = refused("--http", "", data=locked)
    assert "locked" in said
    assert not list(locked.iterdir())


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("metadata.url=postgres://x", "must be memory: or sqlite:PATH"),
        ("objects.url=ftp://x", "must be memory:, file:PATH or one of s3://"),
        ("brokr.id=1", "brokr.id (flag) is not a key; did you mean broker.id?"),
    ],
)
def test_a_wrong_setting_is_refused(tmp_path: Path, setting: str, said: str) -> None:
    assert said in refused("--http", "", "--set", setting, data=tmp_path)


def test_data_of_a_newer_format_is_refused_and_left_alone(tmp_path: Path) -> None:
    async def write() -> bytes:
        store = await SqliteMetadataStore.open(tmp_path / "metadata.db", SystemClock())
        value = msgspec.json.encode(ClusterRecord(99, "c", 1))
        await store.put(keys.CLUSTER, value)
        await store.close()
        return value

    async def read() -> list[bytes]:
        store = await SqliteMetadataStore.open(tmp_path / "metadata.db", SystemClock())
        found = await store.range(keys.ROOT)
        await store.close()
        return [each.value for each in found]

    value = asyncio.run(write())
    assert "written by a newer Lakelog (format 99" in refused("--http", "", data=tmp_path)
    assert asyncio.run(read()) == [value]


async def create_topic(port: int) -> int:
    """Create a topic, which needs a write to the domain log; returns the error code."""
    topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1)
    async with await dial(f"127.0.0.1:{port}") as client:
        request = CreateTopicsRequest(topics=(topic,), timeout_ms=5_000)
        return (await client.call(request, CreateTopicsResponse)).topics[0].error_code


def test_a_second_broker_with_the_same_id_is_refused_and_another_id_is_welcome(
    tmp_path: Path,
) -> None:
    with serving("--http", "", data=tmp_path) as (_, first):
        assert "broker id 1 is in use" in refused("--http", "", data=tmp_path)
        assert asyncio.run(create_topic(first)) == 0  # the refused one did not fence it
        with serving("--http", "", "--broker-id", "2", data=tmp_path) as (_, port):

            async def nodes() -> list[int]:
                async with await dial(f"127.0.0.1:{port}") as client:
                    found = await client.call(MetadataRequest(None), MetadataResponse)
                    return [broker.node_id for broker in found.brokers]

            assert asyncio.run(nodes()) == [1, 2]
