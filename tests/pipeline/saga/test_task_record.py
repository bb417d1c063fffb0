from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from msgspec import structs
from tests.pipeline.saga.task_values import CREATED, FACTS, LEASE, PLANNED, at, file_of

from lakelog.model.failures import Corrupt, Refused
from lakelog.pipeline.saga.task_record import (
    QUARANTINE_MAX,
    TASKS,
    Cleaned,
    Lease,
    LeaseId,
    TaskState,
    claim,
    claimable,
    create,
    decode_record,
    encode_record,
    is_open,
    lease_of,
    renew,
    task_key,
    with_cleaned,
    with_quarantine,
)
from lakelog.pipeline.saga.values import TaskTarget
from lakelog.streams.objects import FileKind

GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "task-record-1.txt"
"""Records of format 1, a line each, as the first version that had them wrote them."""


def test_a_stream_has_one_key() -> None:
    assert task_key(7) == f"{TASKS}7" == "/lakelog/v1/compaction/7"


@pytest.mark.parametrize("state", TaskState)
def test_a_record_in_every_state_is_read_back_as_it_was(state: TaskState) -> None:
    record = structs.replace(at(state), problem="é", quarantine=((4, 6),), failures=2)
    assert decode_record(encode_record(record)) == record


def test_the_bytes_of_records_that_are_stored_stay() -> None:
    written = structs.replace(
        at(TaskState.PARQUET_WRITTEN), problem="é", quarantine=((4, 6),), failures=2
    )
    planned = replace(PLANNED, target=TaskTarget.CLEAN, expected=None, inputs=("a", "b"))
    cleaned = structs.replace(
        at(TaskState.CLOSED, create(None, planned, LEASE)),
        cleaned=Cleaned(end=9, tombstones_end=5, passes=((4, 1), (8, 2))),
    )
    stored = GOLDEN.read_bytes().splitlines()
    assert [encode_record(record) for record in (CREATED, written, cleaned)] == stored
    assert [decode_record(value) for value in stored] == [CREATED, written, cleaned]


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
        {"inputs": ["a"]},
        {"target": "clean", "inputs": ["a", "a"]},
        {"cleaned": {"end": 1, "tombstones_end": 2, "passes": []}},
        {"cleaned": {"end": 5, "tombstones_end": 2, "passes": [[4, 1], [3, 2]]}},
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
    assert lease_of(first) == LeaseId(2, "two")
    assert first.task == 1
    ended = structs.replace(first, state=TaskState.WAL_GC_READY, file=file_of(first))
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


def test_failures_go_along_while_the_range_is_tried_again() -> None:
    failed = structs.replace(at(TaskState.CLOSED), failures=3)
    assert create(failed, PLANNED, LEASE).failures == 3
    assert create(failed, replace(PLANNED, start=10, end=12), LEASE).failures == 0


def test_what_cannot_be_read_goes_along_and_the_newest_of_it_is_kept() -> None:
    bad = tuple((place, place + 1) for place in range(QUARANTINE_MAX + 1))
    failed = structs.replace(at(TaskState.CLOSED), quarantine=bad)
    later = create(failed, replace(PLANNED, start=10, end=12), LEASE)
    assert later.quarantine == bad[1:]


def test_how_far_the_stream_is_clean_goes_along() -> None:
    cleaned = Cleaned(8, 4, ((4, 100), (8, 200)))
    ended = with_cleaned(at(TaskState.CLOSED), cleaned)
    assert create(ended, PLANNED, LEASE).cleaned == cleaned
    assert decode_record(encode_record(ended)) == ended
    with pytest.raises(AssertionError):
        with_cleaned(CREATED, cleaned)
    with pytest.raises(AssertionError):
        with_cleaned(ended, Cleaned(7))


def test_a_file_that_a_scan_could_not_read_is_remembered() -> None:
    ended = with_quarantine(at(TaskState.CLOSED), start=4, end=6)
    assert ended.quarantine == ((4, 6),)
    assert create(ended, PLANNED, LEASE).quarantine == ((4, 6),)
    with pytest.raises(AssertionError):
        with_quarantine(CREATED, start=4, end=6)


def test_a_replacing_task_names_its_inputs() -> None:
    record = create(None, replace(PLANNED, target=TaskTarget.REWRITE, inputs=("a", "b")), LEASE)
    assert record.is_replacing
    assert record.output_kind is FileKind.PARQUET
    assert decode_record(encode_record(record)) == record


def test_a_lease_that_ran_out_may_be_taken_over_and_one_that_ended_not() -> None:
    assert not claimable(CREATED, now_ms=4999)
    assert claimable(CREATED, now_ms=5000)
    assert claimable(renew(CREATED, lease_end_ms=0), now_ms=1)
    assert not claimable(renew(CREATED, lease_end_ms=9000), now_ms=5000)
    assert not claimable(at(TaskState.CLOSED), now_ms=9000)
    assert lease_of(renew(CREATED, lease_end_ms=9000)) == lease_of(CREATED)


def test_only_what_is_at_its_end_is_not_open() -> None:
    ended = {state for state in TaskState if not is_open(at(state))}
    assert ended == {TaskState.WAL_GC_READY, TaskState.CLOSED}
