"""Batches become WAL objects, whatever the store does meanwhile."""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence

import pytest
from tests.lake.blocks import form, rows_of, target

from lakelog.clock import SeededEntropy, SystemClock
from lakelog.domain.commit_event import Commit
from lakelog.domain.events import Kind, decode_event
from lakelog.index.messages import WriteStore
from lakelog.lake.write.commit_client import PlacedObject
from lakelog.lake.write.record_batches import StreamBatch, built_batches
from lakelog.lake.write.wal_objects import ObjectOptions, ObjectWriter, delete_placed
from lakelog.log.options import LogOptions
from lakelog.model.failures import OutcomeUnknown, Refused, Unavailable
from lakelog.objects.memory import MemoryObjectStore
from lakelog.objects.port import Buffer
from lakelog.wal.layout import decode, object_key, parse_object_key, wal_id_time_ms

NOW_MS = 1_700_000_000_000
PLACE = WriteStore("cluster", "memory:", {}, "zone-a", 0, 900_000)
QUICK = LogOptions(put_retry_ms=1, put_retry_max_ms=1, put_give_up_ms=200)

Act = Callable[[str, int], None]


class FixedClock(SystemClock):
    """A clock whose wall stands still."""

    def now_ms(self) -> int:
        return NOW_MS


class Store(MemoryObjectStore):
    """A store that is told how to take each attempt of a put, and counts those under way."""

    def __init__(self, act: Act = lambda key, attempt: None) -> None:
        super().__init__(SystemClock())
        self._act = act
        self.attempts: Counter[str] = Counter()
        self.under_way = 0
        self.most = 0

    async def put(self, key: str, parts: Sequence[Buffer]) -> None:
        self.attempts[key] += 1
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        try:
            await asyncio.sleep(0)
            self._act(key, self.attempts[key])
            await super().put(key, parts)
        finally:
            self.under_way -= 1

    async def keys(self) -> set[str]:
        return {info.key async for info in self.list("")}


def writer_to(store: Store, options: ObjectOptions | None = None) -> ObjectWriter:
    return ObjectWriter(
        store, PLACE, FixedClock(), SeededEntropy("w"), options or ObjectOptions(QUICK)
    )


def batches(values: Sequence[bytes], partitions: int = 4) -> list[StreamBatch]:
    rows, places = rows_of(value=list(values))
    of = target(partitions=partitions)
    return list(built_batches(rows, form(places), {"t": of}, now_ms=NOW_MS))


def commit_of(placed: PlacedObject) -> Commit:
    commit = decode_event(Kind.COMMIT, memoryview(placed.commit))
    assert isinstance(commit, Commit)
    return commit


async def stored(store: Store, placed: Sequence[PlacedObject]) -> dict[int, list[bytes]]:
    """The batches of every stream, in order, checked against what the commits say."""
    found: dict[int, list[bytes]] = {}
    for one in placed:
        commit = commit_of(one)
        parsed = parse_object_key(object_key("zone-a", one.domain, commit.wal_id))  # type: ignore[arg-type]  # a number
        assert parsed is not None
        data = await store.get(object_key(commit.zone, parsed.domain, commit.wal_id))
        held = decode(data, wal_id=commit.wal_id)
        assert held.domain == one.domain
        assert len(data) == commit.size_bytes
        places = zip(commit.stream, commit.byte_start, commit.byte_length, strict=True)
        for stream, start, length in places:
            batch = bytes(data[int(start) + 4 : int(start) + int(length)])
            found.setdefault(int(stream), []).append(batch)
        assert [len(some) for some in held.batches] == list(
            Counter(commit.stream.tolist()).values()
        )
    return found


def by_stream(built: Sequence[StreamBatch]) -> dict[int, list[bytes]]:
    found: dict[int, list[bytes]] = {}
    for one in built:
        found.setdefault(one.stream, []).append(bytes(one.batch.data))
    return found


def test_every_domain_gets_an_object_and_its_commit_tells_the_batches() -> None:
    async def run() -> None:
        store = Store()
        writer = writer_to(store)
        built = batches([b"%d" % number for number in range(50)])
        await writer.add(built)
        placed = await writer.finish()
        assert [one.domain for one in placed] == [0, 1]
        assert await stored(store, placed) == by_stream(built)
        for one in placed:
            commit = commit_of(one)
            assert wal_id_time_ms(commit.wal_id) == NOW_MS
            assert set(commit.producer.tolist()) == {-1}
            assert set(commit.max_timestamp.tolist()) == {NOW_MS}

    asyncio.run(run())


def test_objects_are_cut_by_size_and_streams_keep_their_order() -> None:
    async def run() -> None:
        store = Store()
        small = LogOptions(put_retry_ms=1, object_bytes_max=2_000, object_batches_max=7)
        writer = writer_to(store, ObjectOptions(small, gathered_bytes_max=1 << 20, puts_max=2))
        built = [one for number in range(60) for one in batches([b"%d" % number * 30] * 3)]
        for one in built:
            await writer.add([one])
        placed = await writer.finish()
        assert len(placed) > 8
        assert store.most <= 2
        assert await stored(store, placed) == by_stream(built)

    asyncio.run(run())


def test_what_waits_in_all_domains_together_is_bounded() -> None:
    async def run() -> None:
        store = Store()
        writer = writer_to(store, ObjectOptions(QUICK, gathered_bytes_max=3_000))
        for number in range(40):
            await writer.add(batches([b"%d" % number * 50], partitions=4))
        built = [one for number in range(40) for one in batches([b"%d" % number * 50])]
        placed = await writer.finish()
        assert len(placed) > 2
        assert all(commit_of(one).size_bytes < 4_000 for one in placed)
        assert await stored(store, placed) == by_stream(built)

    asyncio.run(run())


def test_no_row_is_no_object() -> None:
    async def run() -> None:
        store = Store()
        assert await writer_to(store).finish() == ()
        assert await store.keys() == set()

    asyncio.run(run())


@pytest.mark.parametrize("kind", [Unavailable, OutcomeUnknown])
def test_a_put_that_fails_is_repeated_under_its_own_name(kind: type[Exception]) -> None:
    def fails_twice(_key: str, attempt: int) -> None:
        if attempt <= 2:
            raise kind("not now")

    async def run() -> None:
        store = Store(fails_twice)
        writer = writer_to(store)
        built = batches([b"a", b"b", b"c"], partitions=1)
        await writer.add(built)
        placed = await writer.finish()
        assert list(store.attempts.values()) == [3]
        assert await stored(store, placed) == by_stream(built)

    asyncio.run(run())


def test_a_store_that_takes_nothing_fails_the_write() -> None:
    def never(_key: str, _attempt: int) -> None:
        raise Unavailable("down")

    async def run() -> None:
        store = Store(never)
        writer = writer_to(store)
        await writer.add(batches([b"a"]))
        with pytest.raises(Unavailable, match="down"):
            await writer.finish()

    asyncio.run(run())


def test_a_refusal_is_heard_where_more_is_brought() -> None:
    def refuses(_key: str, _attempt: int) -> None:
        raise Refused("no access")

    async def run() -> None:
        store = Store(refuses)
        writer = writer_to(store, ObjectOptions(LogOptions(object_batches_max=1), puts_max=1))
        await writer.add(batches([b"a"]))
        with pytest.raises(Refused, match="no access"):
            await writer.add(batches([b"a"]))
        await writer.discard()

    asyncio.run(run())


def test_a_write_that_is_given_up_leaves_nothing() -> None:
    async def run() -> None:
        store = Store()
        one = LogOptions(object_batches_max=1)
        writer = writer_to(store, ObjectOptions(one))
        await writer.add(batches([b"%d" % number for number in range(20)]))
        await writer.discard()
        assert await store.keys() == set()

    asyncio.run(run())


def test_what_was_put_can_be_deleted_by_its_commits_and_twice() -> None:
    async def run() -> None:
        store = Store()
        writer = writer_to(store)
        await writer.add(batches([b"%d" % number for number in range(20)]))
        placed = await writer.finish()
        assert len(await store.keys()) == len(placed) == 2
        await delete_placed(store, placed[:1])
        assert len(await store.keys()) == 1
        await delete_placed(store, placed)
        await delete_placed(store, ())
        assert await store.keys() == set()

    asyncio.run(run())


def test_a_slow_clock_is_moved_ahead_of_what_the_broker_allows() -> None:
    async def run() -> None:
        store = Store()
        late = WriteStore("cluster", "memory:", {}, "zone-a", NOW_MS + 70_000, 900_000)
        writer = ObjectWriter(store, late, FixedClock(), SeededEntropy("w"))
        await writer.add(batches([b"a"]))
        (placed,) = await writer.finish()
        assert wal_id_time_ms(commit_of(placed).wal_id) == NOW_MS + 70_000

    asyncio.run(run())
