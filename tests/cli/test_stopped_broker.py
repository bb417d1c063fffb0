"""A broker that does nothing for longer than its session: it is stopped, or it computes."""

import asyncio
import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.cli.test_serve import PATIENCE_S, port_of, serve
from tests.compat.groups.clusters import is_free

from lakelog.clock import SystemClock
from lakelog.kafka_client.connection import BrokerConnection
from lakelog.kafka_client.dialing import dial
from lakelog.meta import keys
from lakelog.meta.sqlite import SqliteMetadataStore
from lakelog.server.options import Address
from lakelog.testing.broker import EmbeddedBroker, EmbeddedOptions
from lakelog.topics.cluster import SESSION_TTL_S
from lakelog.wire.messages.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

STEP_S = 0.02
COMPUTES_S = SESSION_TTL_S * 2
SETTINGS = ("--http", "", "--set", "domain.checkpoint_records=4")


class Process:
    """A broker process and what it logs."""

    def __init__(self, data: Path, broker_id: int) -> None:
        self.popen = serve(*SETTINGS, "--broker-id", str(broker_id), data=data)
        self.address = Address("127.0.0.1", port_of(self.popen))
        self.said: list[dict[str, object]] = []
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    def _read(self) -> None:
        assert self.popen.stderr is not None
        for line in self.popen.stderr:
            self.said.append(json.loads(line))

    def events(self) -> list[object]:
        """What it has told so far."""
        return [said["event"] for said in self.said]

    def end(self) -> None:
        """Kill it, if it runs, and hear its last words."""
        self.popen.kill()
        self.popen.wait(PATIENCE_S)
        self._reading.join(PATIENCE_S)
        assert self.popen.stdout is not None
        assert self.popen.stderr is not None
        self.popen.stdout.close()
        self.popen.stderr.close()


@contextmanager
def two_brokers(data: Path) -> Iterator[tuple[Process, Process]]:
    first = Process(data, 1)
    try:
        second = Process(data, 2)
        try:
            yield first, second
        finally:
            second.end()
    finally:
        first.end()


async def stop(process: "subprocess.Popen[str]", metadata: Path) -> None:
    """SIGSTOP, but not within a transaction: nobody else could write then."""
    while True:
        os.kill(process.pid, signal.SIGSTOP)
        if is_free(metadata):
            return
        os.kill(process.pid, signal.SIGCONT)
        await asyncio.sleep(STEP_S)


async def created(client: BrokerConnection, name: str) -> int:
    """What a broker answers to the creation of a topic."""
    request = CreateTopicsRequest((CreatableTopic(name, 1, -1),), timeout_ms=5_000)
    return (await client.call(request, CreateTopicsResponse)).topics[0].error_code


async def go_on_without(first: Process, metadata: Path) -> None:
    """Have broker 1 write until the log is trimmed and broker 2's session has ended."""
    store = await SqliteMetadataStore.open(metadata, SystemClock())
    log = store.log(keys.domain_log(0))
    reached = (await log.read(after=0)).end
    try:
        async with await dial(str(first.address)) as client:
            number = 0
            while (
                await store.get(keys.broker(2)) is not None
                or (await log.read(after=0)).start <= reached + 1
            ):
                number += 1
                assert await created(client, f"meanwhile-{number}") == 0
    finally:
        await store.close()


@pytest.mark.proof
def test_a_broker_that_stood_still_for_longer_than_its_session_serves_on(tmp_path: Path) -> None:
    """Nobody took its name: it is born again, and says what happened."""
    metadata = tmp_path / "metadata.db"

    async def scenario(first: Process, second: Process) -> None:
        async with asyncio.timeout(PATIENCE_S * 3):
            await stop(second.popen, metadata)
            await go_on_without(first, metadata)
            os.kill(second.popen.pid, signal.SIGCONT)
            code, number = -1, 0
            while code != 0:
                assert second.popen.poll() is None, second.said
                await asyncio.sleep(STEP_S)
                number += 1
                async with await dial(str(second.address)) as client:
                    code = await created(client, f"afterwards-{number}")

    with two_brokers(tmp_path) as (first, second):
        asyncio.run(scenario(first, second))
        assert second.popen.poll() is None, second.said
    for told in ("session_lost", "session_won", "reload", "reloaded"):
        assert told in second.events()
    assert "domain_stopped" not in second.events()


def compute(computed: threading.Event) -> None:
    """What a handler may do to the event loop at its worst."""
    until_s = time.monotonic() + COMPUTES_S
    while time.monotonic() < until_s:
        pass
    computed.set()


@pytest.mark.proof
def test_a_broker_that_computes_for_longer_than_its_session_keeps_it(tmp_path: Path) -> None:
    async def seen(computed: threading.Event) -> set[int]:
        """Which versions of its key others saw meanwhile, 0 for none."""
        versions = set()
        store = await SqliteMetadataStore.open(tmp_path / "metadata.db", SystemClock())
        while not computed.is_set():
            found = await store.get(keys.broker(1))
            versions.add(0 if found is None else found.version)
            await asyncio.sleep(STEP_S)
        await store.close()
        return versions

    with EmbeddedBroker(EmbeddedOptions(data=tmp_path)) as broker:
        computed = threading.Event()
        assert broker._loop is not None
        broker._loop.call_soon_threadsafe(compute, computed)
        versions = asyncio.run(seen(computed))
    assert len(versions) == 1
    assert 0 not in versions
