"""Streams are looked at for segments when there is a reason, and once for each."""

import pytest
from msgspec import structs
from tests.pipeline.saga.task_values import CREATED, SEGMENT, at

from lakelog.pipeline.planning.backfill import BackfillCandidates
from lakelog.pipeline.saga.record_store import StoredRecord
from lakelog.pipeline.saga.task_record import TaskRecord, TaskState

TABLE = StoredRecord(at(TaskState.WAL_GC_READY), 1)
LOG = StoredRecord(at(TaskState.WAL_GC_READY, SEGMENT), 1)


def later(stored: StoredRecord) -> StoredRecord:
    record = stored.record
    return StoredRecord(structs.replace(record, task=record.task + 1, epoch=record.epoch + 1), 2)


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        (LOG.record, True),
        (at(TaskState.CLOSED), True),  # perhaps it was to take the rows of segments
        (TABLE.record, False),
        (CREATED, False),
    ],
)
def test_the_last_task_is_a_reason_when_it_made_a_segment_or_was_given_up(
    record: TaskRecord, expected: bool
) -> None:
    assert BackfillCandidates().holds(7, StoredRecord(record, 1)) is expected


def test_a_look_that_found_nothing_is_good_until_another_task_has_run() -> None:
    candidates = BackfillCandidates()
    candidates.settle(7, LOG)
    assert not candidates.holds(7, LOG)
    candidates.suspect(7, LOG)
    assert not candidates.holds(7, LOG)
    assert candidates.holds(7, later(LOG))
    assert not candidates.holds(7, later(TABLE))
    candidates.suspect(7, later(TABLE))
    assert candidates.holds(7, later(TABLE))
    assert candidates.holds(7, later(later(TABLE)))  # until it was looked at


def test_a_stream_without_a_record_may_be_suspected_too() -> None:
    candidates = BackfillCandidates()
    assert not candidates.holds(7, None)
    candidates.suspect(7, None)
    assert candidates.holds(7, None)
    candidates.settle(7, None)
    assert not candidates.holds(7, None)


def test_streams_that_are_gone_are_forgotten() -> None:
    candidates = BackfillCandidates()
    candidates.suspect(7, TABLE)
    candidates.settle(8, LOG)
    candidates.keep({9})
    assert not candidates.holds(7, TABLE)
    assert candidates.holds(8, LOG)
