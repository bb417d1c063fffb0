"""What a broker tells the pipeline, readers and writers over HTTP, and where an answer ends."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import msgspec
import pytest
from tests.broker.whole import whole_broker
from tests.index.index_stage import ENTROPY, Ask, filled, made, port, swapped
from tests.index.test_broker_services_write import commit_bytes, head
from tests.index.test_http_server import COMMIT, SWAP
from tests.memory_cluster import MemoryCluster, batch

from lakelog.broker.call import Broker
from lakelog.index import http_server, messages
from lakelog.index.broker_index import BrokerIndex
from lakelog.index.broker_services import WriteService
from lakelog.index.http_server import (
    PAGES_BYTES_MAX,
    pipeline_routes,
    read_routes,
    snapshot_routes,
    write_routes,
)
from lakelog.index.messages import (
    PIPELINE,
    READ,
    SNAPSHOTS,
    WRITE,
    GroupAnswer,
    Missing,
    SnapshotsAnswer,
    failure_in,
)
from lakelog.index.ports import StorePlace
from lakelog.topics.cluster import PipelineToken, pipeline_token

PLACE = StorePlace("s3://bucket/prefix", {"region": "r"})


@dataclass(frozen=True, slots=True)
class BrokerWithPort:
    """A broker with an HTTP port."""

    broker: Broker
    cluster: MemoryCluster
    ask: Ask

    @property
    def index(self) -> BrokerIndex:
        return BrokerIndex(self.broker, self.cluster.clock)

    async def topics(self) -> None:
        """The topics `a` (two partitions) and `b`, filled."""
        for name, partitions in (("a", 2), ("b", 1)):
            topic = await made(self.broker, name, partitions)
            await filled(self.broker, topic.streams(), objects=2)


def run(scenario: Callable[[BrokerWithPort], Awaitable[None]]) -> None:
    async def bounded() -> None:
        cluster = MemoryCluster()
        async with asyncio.timeout(30), whole_broker(cluster) as broker:
            index = BrokerIndex(broker, cluster.clock)
            routes = [
                *pipeline_routes(index, PipelineToken(cluster.metadata, ENTROPY).get),
                *read_routes(index, PLACE),
                *write_routes(WriteService(broker, cluster.clock), PLACE),
            ]
            token = await pipeline_token(cluster.metadata, ENTROPY)
            assert len(token) == 32
            async with port(routes) as address:
                ask = Ask(address, {"Authorization": f"Bearer {token}"})
                await scenario(BrokerWithPort(broker, cluster, ask))

    asyncio.run(bounded())


def test_a_swap_of_a_kind_that_is_none_is_refused_and_the_log_goes_on() -> None:
    async def scenario(setup: BrokerWithPort) -> None:
        await made(setup.broker, "t")
        for change in ({"kind": 9}, {"kind": 0}, {"key": "/etc"}, {"replaces": [b""]}):
            status, _ = await setup.ask(PIPELINE, "swap", {**SWAP, **change})
            assert status == 403, change
        status, body = await setup.ask(PIPELINE, "swap", SWAP)
        assert status == 200
        assert msgspec.msgpack.decode(body)["accepted"] is False

    run(scenario)


def test_a_reader_is_told_topics_bounds_times_entries_and_the_store() -> None:
    async def scenario(setup: BrokerWithPort) -> None:
        await setup.topics()
        ask, index = setup.ask, setup.index
        status, body = await ask(READ, "store")
        store = msgspec.msgpack.decode(body, type=messages.StoreAnswer)
        assert (status, store.url, store.options) == (200, PLACE.url, {"region": "r"})
        assert store.cluster_id == await index.cluster_id()

        _, body = await ask(READ, "topics", {})
        topics = msgspec.msgpack.decode(body, type=messages.TopicsAnswer).topics
        assert [(name, len(one), len(streams)) for name, one, streams in topics] == [
            ("a", 16, 2),
            ("b", 16, 1),
        ]
        _, body = await ask(READ, "topics", {"names": ["b", "none"]})
        assert msgspec.msgpack.decode(body, type=messages.TopicsAnswer).topics == topics[1:]

        first, second = topics[0][2]
        _, body = await ask(READ, "bounds", {"streams": [second, 99, first]})
        bounds = msgspec.msgpack.decode(body, type=messages.BoundsAnswer).bounds
        assert bounds == [(0, 4), None, (0, 4)]

        _, body = await ask(READ, "times", {"times_ms": {first: 1001, second: 5000, 99: 1}})
        assert msgspec.msgpack.decode(body, type=messages.TimesAnswer).offsets == {first: 1}

        await swapped(index, first, start=0, end=2, key="compaction/v1/x")
        ranges = [(first, 1, 4), (99, 0, 1), (second, 2, 3)]
        _, body = await ask(READ, "entries", {"ranges": ranges})
        one, gone, other = msgspec.msgpack.decode(body, type=messages.RangesAnswer).ranges
        assert gone is None
        assert one is not None
        assert other is not None
        assert list(one.kinds) == [2, 0]
        assert one.names[one.labels[0]] == "compaction/v1/x"
        assert (one.log_start, one.head, one.domain) == (0, 4, 0)
        assert (list(other.kinds), len(other.wal_ids)) == ([0], 16)
        _, same = await ask(PIPELINE, "views", {"ranges": ranges})
        assert same == body

    run(scenario)


def test_an_answer_ends_after_so_many_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "READ_ENTRIES_MAX", 3)

    async def scenario(setup: BrokerWithPort) -> None:
        await setup.topics()
        a, b = await setup.index.topics()
        ranges = [(stream, 0, 4) for stream in (*a.streams, *b.streams)]
        _, body = await setup.ask(READ, "entries", {"ranges": ranges})
        found = msgspec.msgpack.decode(body, type=messages.RangesAnswer).ranges
        assert [len(one.kinds) for one in found if one is not None] == [2]

    run(scenario)


def test_a_writer_is_told_targets_and_place_and_commits() -> None:
    async def scenario(setup: BrokerWithPort) -> None:
        ask, broker = setup.ask, setup.broker
        topic = await made(broker, "t", 2, max_message_bytes="5000", cleanup_policy="compact")
        status, body = await ask(WRITE, "targets", {"names": ["t", "no name"]})
        (target,) = msgspec.msgpack.decode(body, type=messages.TargetsAnswer).targets
        assert status == 200
        assert (target.topic, target.topic_id) == ("t", bytes(topic.id))
        assert (target.streams, target.domains) == (tuple(topic.streams()), (0, 0))
        assert (target.max_message_bytes, target.compression) == (5_000, "producer")
        assert (target.log_append_time, target.is_compacted) == (False, True)
        _, body = await ask(WRITE, "place")
        place = msgspec.msgpack.decode(body, type=messages.WriteStore)
        assert (place.url, place.options, place.zone) == (PLACE.url, {"region": "r"}, "z")
        assert place.cluster_id == broker.cluster.cluster_id

        (first, _) = topic.streams()
        commit = await commit_bytes(setup.cluster, [(first, batch(b"a", b"b"))])
        question = {"application": "job", "version": 3, "placed": [(0, commit)]}
        for is_new in (True, False):
            status, body = await ask(WRITE, "commit", question)
            (taken,) = msgspec.msgpack.decode(body, type=messages.CommitAnswer).domains
            assert (status, taken.domain, taken.is_new) == (200, 0, is_new)
            assert taken.offsets == (((first, 0, 2),) if is_new else ())
        assert head(broker, first) == 2

    run(scenario)


def test_what_is_no_commit_is_refused() -> None:
    async def scenario(setup: BrokerWithPort) -> None:
        status, answer = await setup.ask(WRITE, "commit", COMMIT)
        assert status == 403
        assert "not a commit" in str(failure_in(answer))
        elsewhere = {**COMMIT, "placed": [(1 << 40, b"x")]}
        assert (await setup.ask(WRITE, "commit", elsewhere))[0] == 403

    run(scenario)


KNOWN = SnapshotsAnswer("", bytes(16), 3, 5, b"live", b"recent", 1, 9)
COMMITTED = GroupAnswer("", bytes(16), 2, {0: 7})
NOTHING = 404


@dataclass
class Tables:
    """Tables of which a test says what is known."""

    known: SnapshotsAnswer = KNOWN
    group: GroupAnswer = COMMITTED
    page_bytes: int = 10

    async def snapshots(self, topic: str) -> SnapshotsAnswer:
        assert topic == "t"
        return self.known

    async def page(self, topic_id: bytes, number: int) -> bytes | None:
        assert topic_id == bytes(16)
        return None if number == NOTHING else bytes(self.page_bytes)

    async def committed(self, group: str, topic: str) -> GroupAnswer:
        assert (group, topic) == ("g", "t")
        return self.group


def run_tables(tables: Tables, work: Callable[[Ask], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(30), port(snapshot_routes(tables)) as address:
            await work(Ask(address))

    asyncio.run(bounded())


@pytest.mark.parametrize("missing", list(Missing))
def test_what_is_known_of_tables_and_groups_is_told(missing: Missing) -> None:
    known = KNOWN if missing is Missing.NOTHING else SnapshotsAnswer(missing)
    group = COMMITTED if missing is Missing.NOTHING else GroupAnswer(missing)

    async def work(ask: Ask) -> None:
        status, body = await ask(SNAPSHOTS, "snapshots", {"topic": "t"})
        assert status == 200
        assert msgspec.msgpack.decode(body, type=SnapshotsAnswer) == known
        _, body = await ask(SNAPSHOTS, "group", {"group": "g", "topic": "t"})
        assert msgspec.msgpack.decode(body, type=GroupAnswer) == group
        assert msgspec.msgpack.decode(body)["missing"] == str(missing)
        question = {"topic_id": bytes(16), "numbers": [3, NOTHING]}
        _, body = await ask(SNAPSHOTS, "snapshot_pages", question)
        found = msgspec.msgpack.decode(body, type=messages.PagesAnswer)
        assert found.pages == [bytes(10), None]

    run_tables(Tables(known, group), work)


@pytest.mark.parametrize("page_bytes", [PAGES_BYTES_MAX + 1, PAGES_BYTES_MAX - 1])
def test_an_answer_with_pages_has_a_limit_and_one_page_at_least(page_bytes: int) -> None:
    async def work(ask: Ask) -> None:
        question = {"topic_id": bytes(16), "numbers": [0, 1, 2, 3]}
        _, body = await ask(SNAPSHOTS, "snapshot_pages", question)
        assert len(msgspec.msgpack.decode(body, type=messages.PagesAnswer).pages) == 1

    run_tables(Tables(page_bytes=page_bytes), work)
