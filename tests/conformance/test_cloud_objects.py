"""GCS and Azure, by their emulators, against every claim about object stores."""

import asyncio
import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from tests.conformance.emulators import (
    Emulator,
    azurite,
    azurite_binary,
    fake_gcs,
    fake_gcs_binary,
)
from tests.lake.running import Broker, running_broker

from lakelog.clock import SystemClock, SystemEntropy
from lakelog.model.failures import Unavailable
from lakelog.objects.remote import RemoteObjectStore, open_remote
from lakelog.streams.objects import FileKind
from lakelog.testing.conformance_objects import CHECKS, Check

pytestmark = pytest.mark.proof
PREFIXES = itertools.count()


class CloudSubject:
    """A prefix of its own for every check."""

    def __init__(self, emulator: Emulator) -> None:
        self._emulator = emulator
        self._url = f"{emulator.url}/check-{next(PREFIXES)}/deep"

    async def open(self) -> RemoteObjectStore:
        return opened(self._url, self._emulator)


def opened(url: str, emulator: Emulator) -> RemoteObjectStore:
    return open_remote(url, emulator.options, clock=SystemClock(), entropy=SystemEntropy())


@pytest.fixture(scope="module")
def gcs() -> Iterator[Emulator]:
    if fake_gcs_binary() is None:
        pytest.skip("no fake-gcs-server (python -m tests.conformance.emulators): no test of GCS")
    with fake_gcs() as running:
        yield running


@pytest.fixture(scope="module")
def azure() -> Iterator[Emulator]:
    if azurite_binary() is None:
        pytest.skip("no Azurite (python -m tests.conformance.emulators): no test of Azure")
    with azurite() as running:
        yield running


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_gcs_keeps_the_claim(check: Check, gcs: Emulator) -> None:
    async def run() -> None:
        await check(CloudSubject(gcs))

    asyncio.run(run())


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_azure_keeps_the_claim(check: Check, azure: Emulator) -> None:
    async def run() -> None:
        await check(CloudSubject(azure))

    asyncio.run(run())


@pytest.mark.parametrize("name", ["gcs", "azure"])
def test_a_broker_and_its_tables_live_there(
    name: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    emulator: Emulator = request.getfixturevalue(name)
    options = {f"objects.options.{key}": value for key, value in emulator.options.items()}
    url = f"{emulator.url}/broker-{next(PREFIXES)}"
    sent = [b"%d" % number for number in range(200)]
    with running_broker(tmp_path, {"objects.url": url, **options}) as broker:
        broker.create("orders", 1, lakelog_table_freshness_ms="0")
        broker.produce("orders", sent)
        assert consumed(broker, "orders", len(sent)) == sent
        broker.compact()
        assert broker.kinds("orders", 1) == [[FileKind.PARQUET]]
        assert consumed(broker, "orders", len(sent)) == sent


def consumed(broker: Broker, topic: str, count: int) -> list[bytes | None]:
    """What a consumer reads from the start."""
    settings = {"bootstrap.servers": str(broker.running.address), "group.id": "readers"}
    consumer = Consumer(settings)
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        return [message.value() for message in consumer.consume(count, timeout=30)]
    finally:
        consumer.close()


@pytest.mark.parametrize("name", ["gcs", "azure"])
def test_a_bucket_that_is_not_there_is_said_to_be_missing(
    name: str, request: pytest.FixtureRequest
) -> None:
    emulator: Emulator = request.getfixturevalue(name)
    scheme = emulator.url.partition(":")[0]

    async def run() -> None:
        store = opened(f"{scheme}://no-such-bucket/prefix", emulator)
        with pytest.raises(Unavailable, match="bucket"):
            await store.put("k", [b"x"])
        with pytest.raises(Unavailable):
            async for _ in store.list(""):
                pass
        await store.close()

    asyncio.run(run())
