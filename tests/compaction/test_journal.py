from dataclasses import replace

import msgspec
import pytest
from tests.compaction.task_values import CREATED, FACTS, LEASE, PLANNED, at, file_of

from lakelog.compaction.journal import (
    TASKS,
    Held,
    Lease,
    TaskState,
    claim,
    claimable,
    create,
    decode_record,
    encode_record,
    held_by,
    is_open,
    renew,
    task_key,
)
from lakelog.model.failures import Corrupt, Refused


def test_a_stream_has_one_key() -> None:
    assert task_key(7) == f"{TASKS}7" == "/lakelog/v1/compaction/7"


@pytest.mark.parametrize("state", TaskState)
def test_a_record_in_every_state_is_read_back_as_it_was(state: TaskState) -> None:
    record = replace(at(state), problem="é", quarantine=((4, 6),), failures=2)
    assert decode_record(encode_record(record)) == record


def test_a_record_is_small() -> None:
    assert len(encode_record(at(TaskState.ICEBERG_COMMITTED))) < 2000
    assert FACTS is not None


@pytest.mark.parametrize(
    "change",
    [
        {"start": 10},
        {"expected": 5},
        {"task": 2},
        {"topic_id": "00"},
        {"topic_id": "zz"},
        {"state": "nowhere"},
        {"state": "aborted"},
        {"epoch": "1"},
        {"stream": 0},
        {"target": None},
        {"quarantine": [[5, 5]]},
        {"more": 1},
    ],
)
def test_a_value_that_is_no_record_is_corrupt(change: dict[str, object]) -> None:
    value = msgspec.json.decode(encode_record(CREATED)) | change
    with pytest.raises(Corrupt):
        decode_record(msgspec.json.encode(value))


@pytest.mark.parametrize("value", [b"", b"{", b"[]", b"\xff", b"null", b'{"format":"1"}'])
def test_bytes_that_are_no_record_are_corrupt(value: bytes) -> None:
    with pytest.raises(Corrupt):
        decode_record(value)


def test_a_record_of_a_newer_version_is_refused() -> None:
    with pytest.raises(Refused, match="format 2"):
        decode_record(b'{"format": 2, "whatever": 1}')


def test_the_epoch_counts_on_from_task_to_task() -> None:
    first = claim(CREATED, Lease("two", 9000))
    assert held_by(first) == Held(2, "two")
    assert first.task == 1
    ended = replace(first, state=TaskState.WAL_GC_READY, file=file_of(first))
    second = create(ended, replace(PLANNED, start=10, end=12, expected=10), LEASE)
    assert (second.task, second.epoch, second.state) == (3, 3, TaskState.CREATED)


def test_a_task_begins_only_after_the_last_one_ended() -> None:
    with pytest.raises(AssertionError):
        create(CREATED, PLANNED, LEASE)


def test_a_file_that_the_table_has_begins_as_committed() -> None:
    file = file_of(CREATED)
    record = create(None, replace(PLANNED, present=file, expected=None), LEASE)
    assert (record.state, record.file) == (TaskState.ICEBERG_COMMITTED, file)
    assert decode_record(encode_record(record)) == record


def test_failures_and_quarantine_go_along_while_the_range_is_tried_again() -> None:
    failed = replace(at(TaskState.CLOSED), failures=3, quarantine=((4, 6), (20, 22)))
    again = create(failed, PLANNED, LEASE)
    assert (again.failures, again.quarantine) == (3, ((4, 6), (20, 22)))
    later = create(failed, replace(PLANNED, start=10, end=12), LEASE)
    assert (later.failures, later.quarantine) == (0, ((20, 22),))


def test_a_lease_that_ran_out_may_be_taken_over_and_one_that_ended_not() -> None:
    assert not claimable(CREATED, now_ms=4999)
    assert claimable(CREATED, now_ms=5000)
    assert claimable(renew(CREATED, lease_end_ms=0), now_ms=1)
    assert not claimable(renew(CREATED, lease_end_ms=9000), now_ms=5000)
    assert not claimable(at(TaskState.CLOSED), now_ms=9000)
    assert held_by(renew(CREATED, lease_end_ms=9000)) == held_by(CREATED)


def test_only_what_is_at_its_end_is_not_open() -> None:
    ended = {state for state in TaskState if not is_open(at(state))}
    assert ended == {TaskState.WAL_GC_READY, TaskState.CLOSED}
