"""Batches as rows: what a row says is what its batch is."""

from tests.broker.data_requests import accepted
from tests.broker.data_stage import batch, idempotent

from lakelog.records.batch_rows import COLUMNS, BatchColumn, joined, rows_of


def test_a_row_says_what_its_batch_is() -> None:
    sent = [accepted(batch(b"a", b"b")), accepted(idempotent(7, 1, 5, b"c"))]
    rows = rows_of([3, 9], sent)
    assert len(rows) == 2
    assert rows.rows.shape == (2, COLUMNS)
    assert rows.size_bytes == sum(len(one.data) for one in sent)
    for number, one in enumerate(sent):
        numbers = rows.rows[number].tolist()
        start, length = numbers[BatchColumn.START], numbers[BatchColumn.LENGTH]
        held = memoryview(rows.buffers[numbers[BatchColumn.BUFFER]])[start : start + length]
        assert held == one.data
        assert numbers[BatchColumn.RECORDS] == one.record_count
        assert numbers[BatchColumn.PRODUCER] == one.producer_id
        assert numbers[BatchColumn.EPOCH] == one.producer_epoch
        assert numbers[BatchColumn.SEQUENCE] == one.base_sequence
        assert numbers[BatchColumn.LEAST_MS] == one.min_timestamp_ms
        assert numbers[BatchColumn.GREATEST_MS] == one.max_timestamp_ms
        assert numbers[BatchColumn.APPEND_MS] == -1
    assert rows.column(BatchColumn.STREAM).tolist() == [3, 9]


def test_parts_are_joined_in_their_order_each_in_its_own_buffers() -> None:
    values = (b"a", b"bb", b"ccc", b"dddd")
    one, two, three = (
        rows_of(streams, [accepted(batch(value)) for value in some])
        for streams, some in (([1, 2], values[:2]), ([3], values[2:3]), ([4], values[3:]))
    )
    whole = joined([one, two, three])
    assert whole.column(BatchColumn.STREAM).tolist() == [1, 2, 3, 4]
    assert whole.column(BatchColumn.BUFFER).tolist() == [0, 1, 2, 3]
    assert [bytes(part) for part in whole.buffers] == [bytes(batch(value)) for value in values]
    assert whole.size_bytes == one.size_bytes + two.size_bytes + three.size_bytes
    assert two.column(BatchColumn.BUFFER).tolist() == [0], "a part is not changed by joining"


def test_some_rows_know_their_own_size() -> None:
    rows = rows_of([1, 2, 3], [accepted(batch(bytes(size))) for size in (10, 20, 30)])
    some = rows.slice(1, 3)
    assert some.column(BatchColumn.STREAM).tolist() == [2, 3]
    assert some.size_bytes == rows.size_bytes - len(rows.buffers[0])
