"""`lakelog serve` on an older copy of its metadata, and after `kill -9` at any moment."""

import asyncio
import shutil
import signal
import sqlite3
from pathlib import Path

import pytest
from tests.cli.test_serve import PATIENCE_S, refused, serve, serving

from lakelog.kafka_client.dialing import dial
from lakelog.wire.messages.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

NO_HTTP = ("--http", "")


def create(port: int, name: str) -> None:
    async def ask() -> int:
        async with await dial(f"127.0.0.1:{port}") as client:
            topic = CreatableTopic(name, num_partitions=1, replication_factor=1)
            request = CreateTopicsRequest((topic,), timeout_ms=5_000)
            return (await client.call(request, CreateTopicsResponse)).topics[0].error_code

    assert asyncio.run(ask()) == 0


@pytest.mark.proof
def test_an_older_copy_is_refused_until_the_loss_is_accepted(tmp_path: Path) -> None:
    data, copy = tmp_path / "data", tmp_path / "copy.db"
    with serving(*NO_HTTP, data=data) as (process, port):
        create(port, "kept")
        with sqlite3.connect(data / "metadata.db") as source, sqlite3.connect(copy) as target:
            source.backup(target)
        source.close()
        target.close()
        create(port, "lost")
        process.send_signal(signal.SIGTERM)
        process.wait(PATIENCE_S)
    for leftover in data.glob("metadata.db*"):
        leftover.unlink()
    shutil.copy(copy, data / "metadata.db")
    assert "start once with --accept-lost-metadata" in refused(*NO_HTTP, data=data)
    with serving(*NO_HTTP, "--accept-lost-metadata", data=data) as (_, port):
        create(port, "lost")
    with serving(*NO_HTTP, data=data):
        pass  # killed above, and asked only once


@pytest.mark.proof
def test_a_kill_at_any_moment_never_makes_the_next_start_refuse(tmp_path: Path) -> None:
    often = (*NO_HTTP, "--set", "domain.milestone_ms=1")
    for seen in ("metadata.db", "objects/probe", "objects/milestone", "metadata.db"):
        process = serve(*often, data=tmp_path)
        while not (tmp_path / seen).exists():  # killed as soon as this much is on the disk
            assert process.poll() is None, f"refused before there was {seen}"
        process.kill()
        process.communicate(timeout=PATIENCE_S)
    for number in range(3):
        with serving(*often, data=tmp_path) as (_, port):  # killed while milestones are written
            create(port, f"topic-{number}")
