"""From the records of answers to sorted rows, on a thread of their own."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from lakelog.client.decoder import Decoded, DecodeOptions, Decoder, MemoryAccount, Slice
from lakelog.client.events import ConsumerEvents, Event, PositionReset, ReadFailed, RowsArrived
from lakelog.client.options import OffsetRange
from lakelog.client.watermark import PartitionState
from lakelog.kafka_client.admin import TopicPartition
from lakelog.records.build import BatchOptions, Record, build_batch
from lakelog.records.codecs import Codec
from lakelog.records.fetched_batches import walk_batches

TIMEOUT_S = 30.0


def batch(first: int, times: list[int], codec: Codec = Codec.NONE, size: int = 10) -> bytes:
    records = [Record(None, bytes(size), time) for time in times]
    return build_batch(records, BatchOptions(codec=codec, base_offset=first))


def part(
    records: bytes,
    position: int = 0,
    *,
    version: int = 0,
    released: tuple[OffsetRange, ...] = (),
    is_copied: bool = True,
) -> Slice:
    batches = walk_batches(memoryview(records))
    partition = PartitionState(0, TopicPartition("t", 0), bytes(16), position, released)
    return Slice(
        partition,
        version,
        position,
        batches.next_offset(position),
        memoryview(records),
        batches,
        (),
        is_copied,
    )


class Bench:
    """A decoder, and what it said."""

    def __init__(self, *, is_ordered: bool = True, checks_crcs: bool = True) -> None:
        self.memory = MemoryAccount()
        self.said: list[Decoded] = []
        self.event_queue = ConsumerEvents()
        self._heard = threading.Semaphore(0)
        options = DecodeOptions(is_ordered=is_ordered, checks_crcs=checks_crcs)
        self.decoder = Decoder(options, self.event_queue, self.memory, self._report)

    def _report(self, done: Decoded) -> None:
        self.said.append(done)
        self._heard.release()

    def decode(self, *work: Slice | Event) -> list[Event]:
        self.decoder.put(list(work))
        assert self._heard.acquire(timeout=TIMEOUT_S)
        return self.event_queue.drain()


@contextmanager
def decoding(**options: bool) -> Iterator[Bench]:
    bench = Bench(**options)
    try:
        yield bench
    finally:
        bench.decoder.close()


def offsets(events: list[Event]) -> list[list[int]]:
    return [
        each.run.offsets(0, len(each.run)).tolist()
        for each in events
        if isinstance(each, RowsArrived)
    ]


def test_rows_come_sorted_by_time_and_are_counted() -> None:
    with decoding() as bench:
        records = batch(5, [30, 10, 20]) + batch(8, [5])
        events = bench.decode(part(records, 5))
        assert offsets(events) == [[8, 6, 7, 5]]
        assert isinstance(events[0], RowsArrived)
        assert events[0].next_offset == 9
        assert (bench.memory.held_rows(), bench.memory.held_bytes()) == (4, events[0].run.nbytes)
        assert bench.said[0].wire_bytes == len(records)
        assert (bench.said[0].rows, bench.said[0].corrupt) == (4, ())


def test_news_keep_their_place_between_rows() -> None:
    moved = PositionReset(0, 0, 50)
    with decoding() as bench:
        events = bench.decode(part(batch(0, [1])), moved, part(batch(50, [2]), 50))
    assert [type(each) for each in events] == [RowsArrived, PositionReset, RowsArrived]


def test_rows_that_were_given_out_before_are_left_out() -> None:
    with decoding() as bench:
        events = bench.decode(part(batch(0, [1] * 10), 0, released=((2, 5), (8, 9))))
    assert offsets(events) == [[0, 1, 5, 6, 7, 9]]


def test_rows_before_a_broken_batch_are_given_and_none_after_it() -> None:
    broken = bytearray(batch(3, [1, 2, 3]))
    broken[-1] ^= 1
    records = batch(0, [1, 2, 3]) + broken + batch(6, [1])
    with decoding() as bench:
        events = bench.decode(part(records))
        assert offsets(events) == [[0, 1, 2]]
        assert isinstance(events[0], RowsArrived)
        assert events[0].next_offset == 3
        ((_, offset),) = bench.said[0].corrupt
        assert offset == 3
        assert offsets(bench.decode(part(batch(7, [1]), 7))) == [], "of the same version"
        assert offsets(bench.decode(part(batch(3, [1]), 3, version=1))) == [[3]]


def test_without_checks_a_broken_batch_is_still_never_nonsense() -> None:
    broken = bytearray(batch(0, [1, 2, 3]))
    broken[61] = 0xFF  # the length of the first record
    with decoding(checks_crcs=False) as bench:
        assert bench.decode(part(bytes(broken))) == []
        assert [offset for _, offset in bench.said[0].corrupt] == [0]


def test_an_answer_that_becomes_too_large_comes_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lakelog.client.decoder.DECOMPRESSED_BYTES_MAX", 5000)
    records = b"".join(batch(first, [7] * 10, Codec.ZSTD, 200) for first in range(0, 80, 10))
    with decoding() as bench:
        events = bench.decode(part(records))
        assert not bench.said[0].corrupt
    assert len(events) == 4
    assert offsets(events) == [list(range(first, first + 20)) for first in range(0, 80, 20)]
    assert [each.next_offset for each in events if isinstance(each, RowsArrived)] == [
        20,
        40,
        60,
        80,
    ]


def test_a_bug_is_told_to_the_reader() -> None:
    with decoding() as bench:
        good = part(batch(0, [1]))
        broken = part(batch(0, [1]))
        object.__setattr__(broken, "batches", None)
        events = bench.decode(broken, good)
    assert isinstance(events[0], ReadFailed)
    assert offsets(events) == [[0]]


def test_closing_ends_the_thread_and_drops_the_rest() -> None:
    bench = Bench()
    bench.decoder.close()
    bench.decoder.close()
    assert "lakelog-decode" not in {thread.name for thread in threading.enumerate()}
