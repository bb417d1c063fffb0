"""The way of batches into objects and commits: limits of a record, failures, ids that grow old."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from tests.log.test_log import Flaky, read, values, wal_keys
from tests.memory_cluster import QUICK, TOPIC, MemoryCluster, batch, run

from lakelog.clock import SystemClock
from lakelog.domain import event_queue as writer_module
from lakelog.domain.commit_event import COMMIT_HEAD_BYTES_MAX, Commit
from lakelog.domain.event_queue import EVENT_BYTES_MAX, EventTooLarge
from lakelog.domain.events import encode_event
from lakelog.domain.state import Verdict
from lakelog.log.buffer import ObjectBuffer, SplitRequestOutcome, seal
from lakelog.log.options import BUFFER_BYTES_MAX, COMMIT_BATCHES_MAX, LogOptions
from lakelog.log.values import Appended, Settled
from lakelog.model.failures import Failure, OutcomeUnknown, Unavailable
from lakelog.model.ids import DomainId
from lakelog.objects.memory import MemoryObjectStore
from lakelog.objects.port import Buffer
from lakelog.records.acceptance import AcceptedBatch
from lakelog.records.batch_rows import rows_of
from lakelog.records.build import BatchOptions
from lakelog.wal.layout import decode, make_wal_id, parse_object_key, wal_id_time_ms

EIGHT = LogOptions(linger_ms=1, put_retry_ms=1, put_retry_max_ms=5, object_batches_max=8)
ONE_PUT = LogOptions(
    linger_ms=1, put_retry_ms=1, put_retry_max_ms=5, object_batches_max=8, puts_max=1
)


def numbered(count: int) -> list[AcceptedBatch]:
    return [batch(b"%d" % number) for number in range(count)]


async def batch_counts(cluster: MemoryCluster) -> list[int]:
    """How many batches each WAL object holds."""
    stored = [decode(await cluster.objects.get(key)) for key in sorted(await wal_keys(cluster))]
    return [sum(map(len, one.batches)) for one in stored]


def largest_commit(count: int) -> Commit:
    """The Commit of so many idempotent batches in the zone with the longest name."""
    one = batch(b"v", options=BatchOptions(producer_id=7, producer_epoch=0, base_sequence=0))
    gathered = ObjectBuffer()
    gathered.add(rows_of([1] * count, [one] * count))
    wal_id = make_wal_id(1, bytes(10))
    sealed = seal(gathered, wal_id=wal_id, domain=DomainId(0), zone="z" * 255, created_ms=1)
    return sealed.commit


def test_as_many_batches_as_an_object_may_hold_fit_into_one_event_and_no_more() -> None:
    """Rule 25 is decided before the put: by the number of batches."""
    _, smallest = encode_event(largest_commit(1))
    _, larger = encode_event(largest_commit(2))
    each = len(larger) - len(smallest)
    assert len(smallest) - each == COMMIT_HEAD_BYTES_MAX
    assert COMMIT_HEAD_BYTES_MAX + COMMIT_BATCHES_MAX * each <= EVENT_BYTES_MAX
    assert COMMIT_HEAD_BYTES_MAX + (COMMIT_BATCHES_MAX + 1) * each > EVENT_BYTES_MAX
    assert LogOptions().object_batches_max <= COMMIT_BATCHES_MAX


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("object_batches_max", 0),
        ("object_batches_max", COMMIT_BATCHES_MAX + 1),
        ("buffer_bytes_max", BUFFER_BYTES_MAX + 1),
    ],
)
def test_limits_that_no_record_or_object_can_keep_are_refused(name: str, value: int) -> None:
    limit: dict[str, Any] = {name: value}
    with pytest.raises(ValueError, match=name):
        LogOptions(**limit)


def test_a_request_of_too_many_batches_for_one_object_is_told_once_and_in_order() -> None:
    async def scenario(cluster: MemoryCluster) -> None:
        node = await cluster.node(options=EIGHT)
        await node.log.create_streams(TOPIC, first_partition=0, streams=[1, 2])
        first = node.log.append([1, 2, 1], numbered(3), deadline_s=cluster.soon())
        told: list[Settled] = []
        streams = [2, 1] * 10
        rows = rows_of(streams, numbered(20))
        node.log.hand_over(rows, deadline_s=cluster.soon(), settle=told.append)
        last = node.log.append([2], numbered(1), deadline_s=cluster.soon())
        assert (await first).offsets == [0, 0, 1]
        assert (await last).offsets == [11]
        (appended,) = told
        assert isinstance(appended, Appended)
        assert appended.verdicts == [Verdict.ACCEPTED] * 20
        assert appended.offsets == [place for n in range(10) for place in (1 + n, 2 + n)]
        assert appended.failures == {}
        stored = [value for _, value in values(await read(cluster, node, 1, 0))]
        assert stored == [b"0", b"2", *(b"%d" % number for number in range(1, 20, 2))]
        assert await batch_counts(cluster) == [3, 8, 8, 5]

    run(scenario)


def test_what_gathers_while_every_put_is_taken_fits_into_records_and_keeps_its_order() -> None:
    async def scenario(cluster: MemoryCluster) -> None:
        cluster.objects = flaky = Flaky(cluster)
        node = await cluster.node(options=ONE_PUT)
        await node.log.create_streams(TOPIC, first_partition=0, streams=[1])
        flaky.failing = 5
        pending = [
            node.log.append([1] * 5, numbered(5), deadline_s=cluster.soon()) for _ in range(10)
        ]
        outcomes = await asyncio.gather(*pending)
        offsets = [offset for outcome in outcomes for offset in outcome.offsets]
        assert offsets == list(range(50))
        assert max(await batch_counts(cluster)) <= 8

    run(scenario)


def test_who_waits_for_a_put_hears_when_its_time_is_over() -> None:
    async def scenario(cluster: MemoryCluster) -> None:
        cluster.objects = flaky = Flaky(cluster)
        node = await cluster.node(options=ONE_PUT)
        await node.log.create_streams(TOPIC, first_partition=0, streams=[1])
        flaky.failing = 1_000_000
        deadline_s = cluster.soon(0.05)
        pending = [node.log.append([1] * 7, numbered(7), deadline_s=deadline_s) for _ in range(5)]
        for outcome in pending:
            with pytest.raises(OutcomeUnknown):
                await outcome
        flaky.failing = 0

    run(scenario)


def test_a_stop_commits_what_waits_for_a_put() -> None:
    async def scenario(cluster: MemoryCluster) -> None:
        node = await cluster.node(options=ONE_PUT)
        await node.log.create_streams(TOPIC, first_partition=0, streams=[1])
        pending = [
            node.log.append([1] * 5, numbered(5), deadline_s=cluster.soon()) for _ in range(8)
        ]
        await node.log.close(timeout_s=5)
        assert [outcome.result().offsets[0] for outcome in pending] == list(range(0, 40, 5))

    run(scenario)


def test_a_commit_that_no_record_takes_is_answered_and_the_log_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(cluster: MemoryCluster) -> None:
        node = await cluster.node()
        await node.log.create_streams(TOPIC, first_partition=0, streams=[1])
        monkeypatch.setattr(writer_module, "EVENT_BYTES_MAX", 200)
        with pytest.raises(EventTooLarge):
            await node.log.append([1] * 20, numbered(20), deadline_s=cluster.soon())
        outcome = await node.log.append([1], numbered(1), deadline_s=cluster.soon())
        assert (outcome.verdicts, outcome.offsets) == ([Verdict.ACCEPTED], [0])

    run(scenario)


class Picky(MemoryObjectStore):
    """A store that never takes an object with a certain value."""

    async def put(self, key: str, parts: Sequence[Buffer]) -> None:
        if b"no object" in b"".join(bytes(part) for part in parts):
            raise Unavailable("the store does not take this")
        await super().put(key, parts)


def test_of_a_request_in_several_objects_each_batch_hears_of_its_own() -> None:
    """L2: what is stored is acknowledged, and what certainly is not is refused retriably."""

    async def scenario(cluster: MemoryCluster) -> None:
        cluster.objects = Picky(cluster.clock)
        options = LogOptions(linger_ms=1, put_retry_ms=1, put_give_up_ms=0, object_batches_max=2)
        node = await cluster.node(options=options)
        await node.log.create_streams(TOPIC, first_partition=0, streams=[1, 2])
        sent = [batch(b"a"), batch(b"b"), batch(b"c"), batch(b"no object"), batch(b"d")]
        appended = await node.log.append([1, 2, 1, 2, 1], sent, deadline_s=cluster.soon())
        assert appended.verdicts[:2] == [Verdict.ACCEPTED] * 2
        assert appended.verdicts[4] == Verdict.ACCEPTED
        assert {at: type(failure) for at, failure in appended.failures.items()} == {
            2: Unavailable,
            3: Unavailable,
        }
        assert values(await read(cluster, node, 1, 0)) == [(0, b"a"), (1, b"d")]
        assert values(await read(cluster, node, 2, 0)) == [(0, b"b")]

    run(scenario)


GONE, LATE = Unavailable("gone"), OutcomeUnknown("late")


@pytest.mark.parametrize(
    ("parts", "told"),
    [
        ([Appended([0], [7], [8]), Appended([1], [5], [6])], Appended([0, 1], [7, 5], [8, 6])),
        ([GONE, GONE], GONE),
        ([LATE, LATE], LATE),
        ([LATE, GONE], Appended([6, 6], [-1, -1], [-1, -1], {0: LATE, 1: GONE})),
        ([GONE, LATE], Appended([6, 6], [-1, -1], [-1, -1], {0: GONE, 1: LATE})),
        ([Appended([0], [7], [8]), LATE], Appended([0, 6], [7, -1], [8, -1], {1: LATE})),
    ],
)
def test_parts_of_a_request_are_joined_without_speaking_for_each_other(
    parts: list[Appended | Failure], told: Settled
) -> None:
    """L2: a part of unknown outcome is never told the definite failure of another."""
    heard: list[Settled] = []
    joined = SplitRequestOutcome(2, 2, heard.append)
    for place in (1, 0):
        assert heard == []
        joined.add([place], parts[place])
    assert heard == [told]


def test_parts_of_parts_keep_their_failures() -> None:
    heard: list[Settled] = []
    outer = SplitRequestOutcome(3, 2, heard.append)
    outer.add([1], Appended([0], [4], [-1]))
    outer.add([0, 2], Appended([6, 0], [-1, 9], [-1, -1], {0: GONE}))
    assert heard == [Appended([6, 0, 0], [-1, 4, 9], [-1, -1, -1], {0: GONE})]


class StoppedClock(SystemClock):
    """A wall clock that a test moves; durations run as ever."""

    def __init__(self) -> None:
        self.wall_ms = 1_794_717_942_000

    def now_ms(self) -> int:
        return self.wall_ms


class Aging(MemoryObjectStore):
    """Fails the first puts of WAL objects, each time letting the clock run for so long."""

    def __init__(self, clock: StoppedClock, delays_ms: Sequence[int]) -> None:
        super().__init__(clock)
        self._stopped = clock
        self._delays_ms = list(delays_ms)
        self.asked: list[tuple[str, bytes]] = []

    async def put(self, key: str, parts: Sequence[Buffer]) -> None:
        if key.startswith("wal/"):
            self.asked.append((key, b"".join(bytes(part) for part in parts)))
            if self._delays_ms:
                self._stopped.wall_ms += self._delays_ms.pop(0)
                raise OutcomeUnknown("the store does not answer")
        await super().put(key, parts)


def test_an_id_is_renewed_when_it_is_older_than_half_its_life_and_not_before() -> None:
    """Rule 18: until then a put repeats the same bytes under the same name."""

    async def scenario(cluster: MemoryCluster) -> None:
        cluster.clock = clock = StoppedClock()
        half_ms = QUICK.orphan_ttl_ms // 2
        cluster.objects = aging = Aging(clock, [half_ms, 1, half_ms, 1])
        node = await cluster.node()
        await node.log.create_streams(TOPIC, first_partition=0, streams=[1])
        began_ms = clock.now_ms()
        outcome = await node.log.append([1], [batch(b"a")], deadline_s=cluster.soon())
        assert outcome.verdicts == [Verdict.ACCEPTED]
        assert len(aging.asked) == 5
        assert aging.asked[0] == aging.asked[1]
        assert aging.asked[2] == aging.asked[3]
        places = [parse_object_key(key) for key, _ in aging.asked]
        times_ms = [wal_id_time_ms(place.wal_id) - began_ms for place in places if place]
        assert times_ms == [0, 0, half_ms + 1, half_ms + 1, 2 * half_ms + 2]
        assert await wal_keys(cluster) == {aging.asked[4][0]}
        assert values(await read(cluster, node, 1, 0)) == [(0, b"a")]

    run(scenario)


PATIENT = LogOptions(linger_ms=300, put_retry_ms=1, put_retry_max_ms=5)


def test_a_request_that_is_alone_waits_for_nobody() -> None:
    async def scenario(cluster: MemoryCluster) -> None:
        node = await cluster.node(options=PATIENT)
        await node.log.create_streams(TOPIC, first_partition=0, streams=[1])
        for number in range(3):
            appended = await node.log.append([1], numbered(1), deadline_s=cluster.soon(0.2))
            assert appended.offsets == [number]
        assert await batch_counts(cluster) == [1, 1, 1]

    run(scenario)


def test_requests_that_were_under_way_together_share_an_object_from_then_on() -> None:
    async def scenario(cluster: MemoryCluster) -> None:
        node = await cluster.node(options=PATIENT)
        await node.log.create_streams(TOPIC, first_partition=0, streams=[1])

        async def client() -> None:
            for _ in range(4):
                await node.log.append([1], numbered(1), deadline_s=cluster.soon())

        await asyncio.gather(*(client() for _ in range(5)))
        # The first one was alone when it came; the last ones wait for one that has finished.
        assert await batch_counts(cluster) == [1, 5, 5, 5, 4]

    run(scenario)


def test_where_puts_cost_money_the_linger_is_waited_for() -> None:
    async def scenario(cluster: MemoryCluster) -> None:
        options = LogOptions(linger_ms=50, close_early=False)
        node = await cluster.node(options=options)
        await node.log.create_streams(TOPIC, first_partition=0, streams=[1])
        first = node.log.append([1], numbered(1), deadline_s=cluster.soon())
        await asyncio.sleep(0)
        second = node.log.append([1], numbered(1), deadline_s=cluster.soon())
        await asyncio.gather(first, second)
        assert await batch_counts(cluster) == [2]

    run(scenario)
