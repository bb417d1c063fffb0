"""Batches as a log in memory takes them: from rows, and into a Commit."""

import numpy as np

from lakelog.domain.commit_event import Commit
from lakelog.model.ids import WalId
from lakelog.records.acceptance import AcceptedBatch
from lakelog.records.batch_rows import BatchColumn, BatchRows
from lakelog.records.header import LOG_APPEND_TIME_BIT, parse_header, restamp


def batch_of(batches: BatchRows, row: list[int]) -> AcceptedBatch:
    """The batch of a row, with the broker's time where it is still to get it."""
    start, append_ms = row[BatchColumn.START], row[BatchColumn.APPEND_MS]
    data = memoryview(batches.buffers[row[BatchColumn.BUFFER]])
    data = data[start : start + row[BatchColumn.LENGTH]]
    if append_ms >= 0:
        attributes = parse_header(data).attributes | LOG_APPEND_TIME_BIT
        data = restamp(data, attributes=attributes, max_timestamp_ms=append_ms)
    return AcceptedBatch(
        data,
        row[BatchColumn.RECORDS],
        row[BatchColumn.RECORDS],
        row[BatchColumn.PRODUCER],
        row[BatchColumn.EPOCH],
        row[BatchColumn.SEQUENCE],
        row[BatchColumn.LEAST_MS],
        row[BatchColumn.GREATEST_MS],
        append_ms,
        transactional=False,
    )


def commit_event(batches: list[tuple[int, AcceptedBatch]], number: int) -> Commit:
    """A Commit of these batches, which are sorted by stream."""
    lengths = np.array([len(batch.data) for _, batch in batches], dtype=np.uint32)
    return Commit(
        WalId((1_000).to_bytes(6, "big") + number.to_bytes(10, "big")),
        "",
        int(lengths.sum()) + 66,
        np.array([stream for stream, _ in batches], dtype=np.int64),
        (np.cumsum(lengths) - lengths + 49).astype(np.uint32),
        lengths,
        np.array([batch.offset_count for _, batch in batches], dtype=np.uint32),
        np.array([batch.max_timestamp_ms for _, batch in batches], dtype=np.int64),
        np.array([batch.producer_id for _, batch in batches], dtype=np.int64),
        np.array([batch.producer_epoch for _, batch in batches], dtype=np.int16),
        np.array([batch.base_sequence for _, batch in batches], dtype=np.int32),
    )
