"""Commits through brokers that fail: what is written is written once, and what is said is true."""

import asyncio
import pickle
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest
from tests.broker.whole import whole_broker
from tests.index.index_stage import made, port
from tests.index.stub_server import NOBODY, answering, server
from tests.index.test_broker_services_write import commit_bytes, head
from tests.lake.running import running_broker
from tests.log.placing import made as sealed
from tests.log.placing import put
from tests.memory_cluster import MemoryCluster, batch

from lakelog.broker.call import Broker
from lakelog.clock import SystemClock, SystemEntropy
from lakelog.config.stores import open_objects
from lakelog.domain.events import encode_event
from lakelog.index.broker_services import WriteService
from lakelog.index.http_client import CallLimits
from lakelog.index.http_server import write_routes
from lakelog.index.messages import (
    WRITE,
    DomainResult,
    FailureAnswer,
    QuestionPath,
    WriteStore,
    WriteTarget,
)
from lakelog.index.ports import Bounds, StorePlace
from lakelog.index.remote_index import HttpIndex
from lakelog.lake.write import commit_client as commits_module
from lakelog.lake.write.commit_client import (
    PlacedObject,
    Transaction,
    TransactionResult,
    WriteClient,
)
from lakelog.log.writes import WrittenDomain as Answered
from lakelog.model.failures import Failure, OutcomeUnknown, Refused, Unavailable
from lakelog.retry import Backoff

QUICK = CallLimits(connect_s=1.0, answer_s=5.0)


@asynccontextmanager
async def client_at(*brokers: str) -> AsyncIterator[WriteClient]:
    client = WriteClient(brokers, QUICK)
    try:
        yield client
    finally:
        await client.close()


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(60):
            await scenario()

    asyncio.run(bounded())


class Unsteady(WriteService):
    """Fails in the given ways, one after another: before the commit, or after it."""

    failures: list[tuple[str, type[Failure]]]

    async def commit(
        self, application: str, version: int, placed: Mapping[int, Sequence[bytes]]
    ) -> Sequence[Answered]:
        when, kind = self.failures.pop(0) if self.failures else ("", Failure)
        if when == "before":
            raise kind("a fault")
        written = await super().commit(application, version, placed)
        if when == "after":
            raise kind("a fault")
        return written


@asynccontextmanager
async def unsteady(
    *failures: tuple[str, type[Failure]], domains: int = 1
) -> AsyncIterator[tuple[WriteClient, Broker, MemoryCluster]]:
    cluster = MemoryCluster()
    async with whole_broker(cluster, domains=domains) as broker:
        index = Unsteady(broker, cluster.clock)
        index.failures = list(failures)
        routes = write_routes(index, StorePlace("s3://bucket/prefix", {"region": "r"}))
        async with port(routes) as address, client_at(NOBODY, address) as client:
            yield client, broker, cluster


def test_a_commit_is_repeated_until_it_is_known_to_be_there_and_lands_once() -> None:
    async def scenario() -> None:
        faults = (
            ("before", Unavailable),
            ("after", OutcomeUnknown),
            ("after", Unavailable),
            ("before", OutcomeUnknown),
        )
        async with unsteady(*faults) as (client, broker, cluster):
            topic = await made(broker, "t")
            (stream,) = topic.streams()
            one = PlacedObject(0, await commit_bytes(cluster, [(stream, batch(b"a", b"b"))]))
            two = PlacedObject(0, await commit_bytes(cluster, [(stream, batch(b"c"))]))
            written = await client.commit(Transaction("job", 0), [one, two])
            assert written == TransactionResult(
                (DomainResult(0, is_new=False),)
            )  # an earlier try did it
            assert head(broker, stream) == 3
            # A driver that came back writes the batch again, with other objects.
            again = PlacedObject(0, await commit_bytes(cluster, [(stream, batch(b"a", b"b"))]))
            assert not (await client.commit(Transaction("job", 0), [again])).is_new
            written = await client.commit(Transaction("job", 1), [again])
            assert written.domains == (DomainResult(0, True, ((stream, 3, 5),)),)

    run(scenario)


def test_when_the_time_is_over_what_is_said_is_what_is_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(commits_module, "REPEAT", Backoff(10, 2_000))

    async def scenario() -> None:
        for faults, expected in (
            ([("before", Unavailable)] * 50, Unavailable),
            ([("after", OutcomeUnknown), *[("before", Unavailable)] * 50], OutcomeUnknown),
        ):
            async with unsteady(*faults) as (client, broker, cluster):
                topic = await made(broker, "t")
                (stream,) = topic.streams()
                placed = [PlacedObject(0, await commit_bytes(cluster, [(stream, batch(b"a"))]))]
                with pytest.raises(expected):
                    await client.commit(Transaction("job", 0), placed, timeout_s=0.2)
        async with client_at(NOBODY) as client:
            with pytest.raises(Unavailable, match="no broker answers"):
                await client.commit(Transaction("a", 0), [PlacedObject(0, b"")], timeout_s=0.1)

    run(scenario)


def test_a_refusal_is_not_repeated() -> None:
    async def scenario() -> None:
        async with unsteady(*[("before", Refused)] * 2) as (client, _, __):
            with pytest.raises(Refused, match="a fault"):
                await client.commit(Transaction("job", 0), [PlacedObject(0, b"x")])

    run(scenario)


@pytest.mark.parametrize(
    ("transaction", "says"),
    [
        (Transaction("", 0), "0 bytes"),
        (Transaction("ä" * 128, 0), "256 bytes"),
        (Transaction("\ud800", 0), "not text"),
        (Transaction("job", -1), "not a version"),
        (Transaction("job", 1 << 63), "not a version"),
    ],
)
def test_a_transaction_that_cannot_be_is_refused_before_anything_is_asked(
    transaction: Transaction, says: str
) -> None:
    async def scenario() -> None:
        async with client_at(NOBODY) as client:
            with pytest.raises(Refused, match=says):
                await client.commit(transaction, [PlacedObject(0, b"x")])

    run(scenario)


def test_too_much_for_one_record_is_refused_before_anything_is_asked() -> None:
    async def scenario() -> None:
        async with client_at(NOBODY) as client:
            placed = [PlacedObject(0, b"x"), PlacedObject(1, bytes(1 << 20))]
            with pytest.raises(Refused, match="domain 1 take 1048592 bytes"):
                await client.commit(Transaction("job", 0), placed)
            assert await client.commit(Transaction("job", 0), []) == TransactionResult(())

    run(scenario)


def test_many_domains_are_asked_for_in_several_questions_in_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(commits_module, "WRITE", QuestionPath(WRITE.path, 700))

    async def scenario() -> None:
        async with unsteady(domains=4) as (client, broker, cluster):
            topic = await made(broker, "t", 12)
            placed = []
            for stream in topic.streams():
                domain = broker.log.domain_of(stream)
                data = await commit_bytes(cluster, [(stream, batch(b"a"))], domain=domain)
                placed.append(PlacedObject(domain, data))
            written = await client.commit(Transaction("job", 0), placed)
            assert [one.domain for one in written.domains] == [0, 1, 2, 3]
            assert written.is_new
            assert all(one.is_new for one in written.domains)
            assert [head(broker, stream) for stream in topic.streams()] == [1] * 12

    run(scenario)


def test_an_answer_about_other_domains_is_not_believed() -> None:
    async def scenario() -> None:
        body = msgspec.msgpack.encode({"domains": [(1, True, [])]})
        async with server(answering(200, body)) as mad, client_at(mad) as client:
            with pytest.raises(OutcomeUnknown, match="not about what was asked"):
                await client.commit(Transaction("job", 0), [PlacedObject(0, b"x")])

    run(scenario)


def test_what_changes_nothing_is_never_unknown() -> None:
    async def scenario() -> None:
        unsure = msgspec.msgpack.encode(FailureAnswer("outcome_unknown", "hm"))
        async with server(answering(500, unsure)) as broker, client_at(broker) as client:
            with pytest.raises(Unavailable):
                await client.targets(["t"])
            with pytest.raises(Unavailable):
                await client.place()

    run(scenario)


def test_a_running_broker_takes_objects_from_its_store(tmp_path: Path) -> None:
    with running_broker(tmp_path) as broker:
        broker.create("t", 2)
        broker.produce("t", [b"before"])
        address = broker.server.removeprefix("http://")

        async def scenario() -> None:
            index = HttpIndex([address])
            async with client_at(address) as client:
                targets = await client.targets(["t", "no name"])
                target = targets["t"]
                place = await client.place()
                assert list(targets) == ["t"]
                assert isinstance(target, WriteTarget)
                assert isinstance(place, WriteStore)
                assert pickle.loads(pickle.dumps((target, place))) == (target, place)
                clock = SystemClock()
                objects = await open_objects(place.url, dict(place.options), clock, SystemEntropy())
                rows = [(stream, batch(b"a", b"b")) for stream in target.streams]
                one = sealed(rows, now_ms=clock.now_ms(), zone=place.zone)
                commit = encode_event(await put(objects, one))[1]
                await objects.close()
                placed = [PlacedObject(0, commit)]
                assert (await client.commit(Transaction("job", 7), placed)).is_new
                assert not (await client.commit(Transaction("job", 7), placed)).is_new
                bounds = await index.bounds(target.streams)
                assert list(bounds.values()) == [Bounds(0, 3), Bounds(0, 2)]
            await index.close()

        run(scenario)
