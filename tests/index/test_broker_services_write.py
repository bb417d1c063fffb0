"""A broker as writers of WAL objects see it: targets, the place, and commits by their bytes."""

from collections.abc import Sequence

import pytest
from tests.broker.whole import whole_broker
from tests.index.index_stage import made
from tests.log.placing import made as sealed
from tests.log.placing import put
from tests.memory_cluster import MemoryCluster, batch, run

from lakelog.broker.call import Broker
from lakelog.domain.events import encode_event
from lakelog.index.broker_services import WriteService
from lakelog.log.writes import WrittenDomain
from lakelog.model.failures import OutcomeUnknown, Refused, Unavailable
from lakelog.records.acceptance import AcceptedBatch
from lakelog.records.header import restamp


async def commit_bytes(
    cluster: MemoryCluster, rows: Sequence[tuple[int, AcceptedBatch]], *, domain: int = 0
) -> bytes:
    """An object of these batches in the store; the bytes of its Commit."""
    one = sealed(rows, now_ms=cluster.clock.now_ms(), domain=domain)
    return encode_event(await put(cluster.objects, one, domain=domain))[1]


def head(broker: Broker, stream: int) -> int:
    facts = broker.log.facts(stream)
    assert facts is not None
    return facts.head


def test_targets_say_what_a_topic_asks_of_its_writers() -> None:
    async def scenario(cluster: MemoryCluster) -> None:
        async with whole_broker(cluster, domains=3) as broker:
            index = WriteService(broker, cluster.clock)
            wide = await made(broker, "wide", 9)
            await made(
                broker,
                "other",
                max_message_bytes="2000",
                cleanup_policy="compact",
                message_timestamp_type="LogAppendTime",
            )
            found = {
                target.topic: target.domains for target in await index.targets(["wide", "no name"])
            }
            assert found == {"wide": tuple(map(broker.log.domain_of, wide.streams()))}
            assert len(set(found["wide"])) > 1
            (other,) = await index.targets(["other"])
            assert (other.max_message_bytes, other.compression) == (2_000, "producer")
            assert (other.is_compacted, other.log_append_time) == (True, True)
            place = await index.place()
            assert (place.zone, place.object_ttl_ms) == ("z", 900_000)

    run(scenario)


def test_a_topic_that_is_not_there_is_made_for_a_writer_as_for_a_producer() -> None:
    async def scenario(cluster: MemoryCluster) -> None:
        async with whole_broker(cluster) as broker:
            index = WriteService(broker, cluster.clock)
            (found,) = await index.targets(["fresh", "not a name"])
            assert found.topic == "fresh"
            assert [topic.name for topic in await broker.topics.all()] == ["fresh"]

    run(scenario)


def test_a_commit_is_taken_in_domain_by_domain_and_once() -> None:
    async def scenario(cluster: MemoryCluster) -> None:
        async with whole_broker(cluster, domains=2) as broker:
            index = WriteService(broker, cluster.clock)
            topic = await made(broker, "t", 8)
            placed: dict[int, list[bytes]] = {}
            for stream in topic.streams():
                domain = broker.log.domain_of(stream)
                data = await commit_bytes(cluster, [(stream, batch(b"a", b"b"))], domain=domain)
                placed.setdefault(domain, []).append(data)
            assert set(placed) == {0, 1}
            done = await index.commit("job", 4, placed)
            assert [(one.domain, one.is_new) for one in done] == [(0, True), (1, True)]
            assert {row for one in done for row in one.offsets} == {
                (stream, 0, 2) for stream in topic.streams()
            }
            again = await index.commit("job", 4, placed)
            assert list(again) == [WrittenDomain(0, False), WrittenDomain(1, False)]
            assert [head(broker, stream) for stream in topic.streams()] == [2] * 8

    run(scenario)


async def placed_in_each(
    broker: Broker, cluster: MemoryCluster
) -> tuple[dict[int, int], dict[int, list[bytes]]]:
    """By domain: a stream of it, and the Commit of an object with one record for that stream."""
    topic = await made(broker, "t", 8)
    of = {broker.log.domain_of(stream): stream for stream in topic.streams()}
    data = {
        domain: [await commit_bytes(cluster, [(of[domain], batch(b"a"))], domain=domain)]
        for domain in of
    }
    return of, data


def test_what_one_domain_took_in_stays_when_another_refuses_and_the_repeat_skips_it() -> None:
    async def scenario(cluster: MemoryCluster) -> None:
        async with whole_broker(cluster, domains=2) as broker:
            index = WriteService(broker, cluster.clock)
            of, data = await placed_in_each(broker, cluster)
            await index.commit("job", 1, {0: data[0]})
            done = await index.commit("job", 1, data)
            assert [one.is_new for one in done] == [False, True]
            assert [head(broker, of[domain]) for domain in (0, 1)] == [1, 1]

    run(scenario)


def test_unavailable_is_said_only_where_no_domain_took_anything_in() -> None:
    async def scenario(cluster: MemoryCluster) -> None:
        async with whole_broker(cluster, domains=2) as broker:
            index = WriteService(broker, cluster.clock)
            of, data = await placed_in_each(broker, cluster)
            broker.log.replicas[1]._queue.end("it cannot write")
            with pytest.raises(Unavailable):
                await index.commit("job", 1, {1: data[1]})
            with pytest.raises(OutcomeUnknown, match="some domains have it"):
                await index.commit("job", 1, data)
            assert [head(broker, of[domain]) for domain in (0, 1)] == [1, 0]

    run(scenario)


def test_a_commit_must_keep_to_what_the_topic_asks_for() -> None:
    async def scenario(cluster: MemoryCluster) -> None:
        async with whole_broker(cluster) as broker:
            index = WriteService(broker, cluster.clock)
            small = await made(broker, "small", max_message_bytes="200")
            stamped = await made(broker, "stamped", message_timestamp_type="LogAppendTime")
            (one,), (other,) = small.streams(), stamped.streams()
            large = await commit_bytes(cluster, [(one, batch(bytes(300)))])
            with pytest.raises(Refused, match=r"max\.message\.bytes is 200"):
                await index.commit("job", 0, {0: [large]})
            plain = await commit_bytes(cluster, [(other, batch(b"a"))])
            with pytest.raises(Refused, match=r"message\.timestamp\.type"):
                await index.commit("job", 0, {0: [plain]})
            kept = await commit_bytes(cluster, [(other, appended(batch(b"a")))])
            await index.commit("job", 0, {0: [kept]})
            assert head(broker, other) == 1

    run(scenario)


def appended(accepted: AcceptedBatch) -> AcceptedBatch:
    """The batch, stamped as one of a topic with LogAppendTime."""
    data = restamp(accepted.data, attributes=8, max_timestamp_ms=accepted.max_timestamp_ms)
    fields = {name: getattr(accepted, name) for name in AcceptedBatch.__struct_fields__}
    return AcceptedBatch(**{**fields, "data": data})


def test_nonsense_and_streams_of_other_topics_are_refused() -> None:
    async def scenario(cluster: MemoryCluster) -> None:
        async with whole_broker(cluster, domains=2) as broker:
            index = WriteService(broker, cluster.clock)
            topic = await made(broker, "t", 8)
            stream = next(one for one in topic.streams() if broker.log.domain_of(one) == 0)
            for data in (b"", b"x" * 40, bytes(200)):
                with pytest.raises(Refused, match="not a commit"):
                    await index.commit("job", 0, {0: [data]})
            good = await commit_bytes(cluster, [(stream, batch(b"a"))])
            with pytest.raises(Refused, match="domain 1 has no stream"):
                await index.commit("job", 0, {1: [good]})
            with pytest.raises(Refused, match="no domain 2"):
                await index.commit("job", 0, {2: [good]})
            gone = await commit_bytes(cluster, [(10_000, batch(b"a"))])
            with pytest.raises(Refused, match="no stream 10000"):
                await index.commit("job", 0, {0: [gone]})
            await broker.topics.delete(topic)
            with pytest.raises(Refused, match=f"no stream {stream}: the topic was deleted"):
                await index.commit("job", 0, {0: [good]})

    run(scenario)
