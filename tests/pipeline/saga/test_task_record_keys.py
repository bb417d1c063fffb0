import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
from tests.pipeline.saga.task_values import CREATED, LEASE, SEGMENT, at

from lakelog.pipeline.saga.task_record import (
    Origin,
    TaskRecord,
    TaskState,
    claim,
    may_be_named,
    output_key,
    parse_output_key,
)
from lakelog.streams.objects import FileKind


def test_a_key_names_stream_task_epoch_and_attempt() -> None:
    key = output_key(claim(CREATED, LEASE), attempt="0af3")
    assert key == "compaction/v1/topic=t/partition=3/7-1-2-0af3.parquet"
    assert parse_output_key(key) == Origin("t", 3, 7, 1, 2, "0af3", FileKind.PARQUET)
    segment = parse_output_key(output_key(SEGMENT, attempt="0"))
    assert segment is not None
    assert segment.kind is FileKind.SEGMENT


@pytest.mark.parametrize(
    "key",
    [
        "",
        "wal/v1/x",
        "compaction/v1/topic=t/partition=03/7-1-2-a.parquet",
        "compaction/v1/topic=t/partition=3/7-0-2-a.parquet",
        "compaction/v1/topic=t/partition=3/7-1-2-A.parquet",
        "compaction/v1/topic=t/partition=3/7-1-2-a.parquet\n",
        "compaction/v1/topic=t/x/partition=3/7-1-2-a.parquet",
        "compaction/v1/topic=t/partition=3/7-1-2-a.orc",
    ],
)
def test_a_key_that_is_not_ours_says_nothing(key: str) -> None:
    assert parse_output_key(key) is None


@given(
    st.from_regex(r"[a-zA-Z0-9._-]{1,249}", fullmatch=True),
    st.integers(0, 1 << 31),
    st.integers(1, 1 << 40),
    st.from_regex(r"[0-9a-z]{1,32}", fullmatch=True),
)
def test_every_key_is_read_back(topic: str, partition: int, epoch: int, attempt: str) -> None:
    record = structs.replace(CREATED, topic=topic, partition=partition, epoch=epoch)
    origin = parse_output_key(output_key(record, attempt=attempt))
    assert origin == Origin(topic, partition, 7, 1, epoch, attempt, FileKind.PARQUET)


def keeps(record: TaskRecord | None, key: str) -> bool:
    origin = parse_output_key(key)
    assert origin is not None
    return may_be_named(origin, key, record)


def test_files_of_the_present_lease_are_kept_while_one_may_still_be_marked() -> None:
    mine = output_key(CREATED, attempt="a")
    assert keeps(CREATED, mine)
    assert keeps(CREATED, output_key(CREATED, attempt="b"))
    assert not keeps(claim(CREATED, LEASE), mine)


def test_of_a_task_that_was_written_only_its_file_is_kept() -> None:
    for state in TaskState:
        record = at(state)
        marked, other = output_key(CREATED, attempt="a"), output_key(CREATED, attempt="b")
        is_kept = state not in (TaskState.WAL_GC_READY, TaskState.CLOSED)
        assert keeps(record, marked) == is_kept, state
        assert keeps(record, other) == (state is TaskState.CREATED), state


def test_the_marked_file_is_kept_under_every_later_lease() -> None:
    written = claim(at(TaskState.PARQUET_WRITTEN), LEASE)
    assert keeps(written, output_key(CREATED, attempt="a"))
    assert keeps(claim(at(TaskState.ABORTED), LEASE), output_key(CREATED, attempt="a"))


def test_no_file_is_kept_for_a_stream_without_a_record() -> None:
    assert not keeps(None, output_key(CREATED, attempt="a"))
